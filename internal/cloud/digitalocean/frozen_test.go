package digitalocean

import (
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestWhatTheAccountHasIsAsFrozen: names, tags and descriptions of objects that an earlier version has created.
func TestWhatTheAccountHasIsAsFrozen(t *testing.T) {
	c := &Cloud{cluster: "prod", prefix: "k8s-"}
	req := cloud.CreateVolumeRequest{
		Name: "pvc-0a1b2c3d-0000-1111-2222-333344445555", Source: cloud.Source{Volume: "0a1b2c3d-0000-1111-2222-333344445555"},
		Tags: []cloud.Tag{{Key: "cloudblock-pvc", Value: "data/0"}, {Key: "cloudblock-pvc-namespace", Value: "shop"}, {Key: "cloudblock-pv", Value: "pvc-0a1b"}},
	}
	lines := []string{
		"volume " + c.cloudName(req.Name), "described " + c.newRecord(req).line(),
		"snapshot " + c.snapshotName("snapshot-0a1b2c3d"), "temporary snapshot " + c.temporaryName(req.Name),
	}
	for _, tag := range []cloud.Tag{{Key: "team", Value: "a"}, {Key: "cloudblock-cluster", Value: "prod"}} {
		word, err := tagRule.Write(tag)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, "tag "+word)
	}
	golden.Format(t, "account.txt", strings.Join(lines, "\n")+"\n")
	if r, ok := parseRecord(c.newRecord(req).line()); !ok || r.line() != c.newRecord(req).line() {
		t.Errorf("the description is read as %v, %t", r, ok)
	}
}
