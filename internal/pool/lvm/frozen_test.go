package lvm

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestTagsAreAsFrozen: the tags of a logical volume that an earlier version has created are read, and the present version writes the same.
func TestTagsAreAsFrozen(t *testing.T) {
	const id = pool.ID("00112233445566778899aabbccddeeff")
	record := pool.Record{
		ID: id, Name: "pvc-1 of \u0442\u043e\u043c", Size: gib, State: pool.Ready, Created: time.Unix(1767323045, 0).UTC(),
		Tags: []pool.Pair{{Name: "cloudblock-pvc", Value: "data+1"}, {Name: "team", Value: "a:b"}},
	}
	tags, err := recordTags(record)
	must(t, err)
	lines := append([]string{
		"volume " + volumeLV + string(id), "growth " + growthLV + string(id),
		"of the group " + nodeTag, "of the group " + poolTag, "of a volume " + creatingTag, "of a volume " + zeroedTag, "of a volume " + blankTag,
	}, tags...)
	golden.Format(t, "tags.txt", strings.Join(lines, "\n")+"\n")
	stored, err := os.ReadFile("testdata/tags.txt")
	must(t, err)
	written := strings.Split(strings.TrimSpace(string(stored)), "\n")
	got, err := recordOf(id, logicalVolume{Size: gib, Tags: strings.Join(written[len(written)-len(tags):], ",")})
	if err != nil || !reflect.DeepEqual(got, record) {
		t.Errorf("the tags are read as %+v, %v, want %+v", got, err, record)
	}
}
