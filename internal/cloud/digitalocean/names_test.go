package digitalocean

import (
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// Whose a snapshot is says its name, whatever the volume and the request were.
func TestASnapshotSaysWhoseItIs(t *testing.T) {
	c := &Cloud{prefix: "k8s-", cluster: "one"}
	other := &Cloud{prefix: "k8s-", cluster: "two"}
	long := strings.Repeat("Long.", 30)
	ours := c.snapshotName("snapshot-1")
	for name, tc := range map[string]struct {
		name string
		tags []string
		want cloud.Mark
	}{
		"this cluster's":                    {ours, nil, cloud.Mark{Driver: true, Cluster: "one"}},
		"of a request with a long name":     {c.snapshotName(long), nil, cloud.Mark{Driver: true, Cluster: "one"}},
		"temporary":                         {c.temporaryName(long), nil, cloud.Mark{Driver: true, Cluster: "one", Temporary: true}},
		"another cluster's":                 {other.snapshotName("snapshot-1"), nil, cloud.Mark{Driver: true}},
		"another cluster's with its tag":    {other.snapshotName("snapshot-1"), []string{"cloudblock-cluster:two"}, cloud.Mark{Driver: true, Cluster: "two"}},
		"another cluster's with our tag":    {other.snapshotName("snapshot-1"), []string{"cloudblock-cluster:one"}, cloud.Mark{Driver: true}},
		"another cluster's temporary one":   {other.temporaryName("a"), nil, cloud.Mark{Driver: true, Temporary: true}},
		"a person's":                        {"by-hand", nil, cloud.Mark{}},
		"a person's, named like a clone's":  {"clone-of-mine", nil, cloud.Mark{}},
		"a person's, with our seal":         {"x" + ours, nil, cloud.Mark{Driver: true}},
		"no name":                           {"", nil, cloud.Mark{}},
		"as long as a seal, and none of it": {strings.Repeat("a", sealLen), nil, cloud.Mark{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.markOf(&snapshot{Name: tc.name, Tags: tc.tags}); got != tc.want || len(tc.name) > names.MaxLen {
				t.Errorf("markOf(%q, %q) = %+v, want %+v", tc.name, tc.tags, got, tc.want)
			}
		})
	}
	if c.snapshotName(long) == c.snapshotName(long+"b") {
		t.Error("two requests have one name")
	}
}
