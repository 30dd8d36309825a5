package files

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestRecordsAreAsFrozen: a record that an earlier version has stored is read, and the present version stores the same.
func TestRecordsAreAsFrozen(t *testing.T) {
	const id, other = pool.ID("00112233445566778899aabbccddeeff"), pool.ID("ffeeddccbbaa99887766554433221100")
	created := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	tags := []pool.Pair{{Name: "cloudblock-pvc", Value: "data"}, {Name: "team", Value: "a"}}
	for file, of := range map[string]struct {
		ref    pool.Ref
		record pool.Record
	}{
		"volume.json": {pool.VolumeRef(id), pool.Record{
			ID: id, Name: "pvc-1", Size: pool.SmallestVolume, GrowTo: 2 * pool.SmallestVolume, State: pool.Ready, Created: created,
			Source: "snapshots/" + string(other), BlockSize: sharedBlock, Tags: tags,
		}},
		"creating.json": {pool.VolumeRef(id), pool.Record{ID: id, Name: "pvc-1", Size: pool.SmallestVolume, State: pool.Creating, Created: created}},
		"snapshot.json": {pool.SnapshotRef(id), pool.Record{
			ID: id, Name: "snapshot-1", Size: pool.SmallestVolume, State: pool.Ready, Created: created, BlockSize: sharedBlock, Volume: other,
		}},
	} {
		text, err := encode(of.record)
		must(t, err)
		golden.Format(t, file, string(text))
		stored, err := os.ReadFile(filepath.Join("testdata", file))
		must(t, err)
		if got, err := decodeRecord(of.ref, stored); err != nil || !reflect.DeepEqual(got, of.record) {
			t.Errorf("%s is read as %+v, %v, want %+v", file, got, err, of.record)
		}
	}
}

// TestTheFolderIsAsFrozen: the files of a pool with a volume, and what the pool says of itself.
func TestTheFolderIsAsFrozen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pool")
	mustCreate(t, openPool(t, dir), "a", small)
	var text strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			fmt.Fprintf(&text, "%s %s\n", info.Mode(), strings.TrimPrefix(path, dir))
		}
		return err
	}))
	about, err := os.ReadFile(filepath.Join(dir, metaFile))
	must(t, err)
	text.Write(about)
	random := regexp.MustCompile(`[0-9a-f]{32}`).ReplaceAllString(text.String(), "ID")
	golden.Format(t, "folder.txt", regexp.MustCompile(`"created":"[^"]*"`).ReplaceAllString(random, `"created":"TIME"`))
}
