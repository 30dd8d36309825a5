package linode

import (
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestWhatTheAccountHasIsAsFrozen: labels and tags of objects that an earlier version has created, and the parameters of classes.
func TestWhatTheAccountHasIsAsFrozen(t *testing.T) {
	c := &Cloud{cluster: "prod", prefix: "k8s-", kubernetesTags: true}
	req := cloud.CreateVolumeRequest{
		Name: "pvc-0a1b2c3d-0000-1111-2222-333344445555", Source: cloud.Source{Volume: "4711"},
		Tags: []cloud.Tag{{Key: "cloudblock-pvc", Value: "data/0"}, {Key: "cloudblock-pvc-namespace", Value: "shop"}, {Key: "team", Value: "a"}},
	}
	words, err := c.tagsOf(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{
		"volume " + c.labelOf(req.Name), "unfinished copy " + c.temporaryLabel(req.Name, 4711), "snapshot " + c.snapshotLabel("snapshot-0a1b2c3d"),
	}
	for _, word := range words {
		lines = append(lines, "tag "+word)
	}
	golden.Format(t, "account.txt", strings.Join(lines, "\n")+"\n")
	golden.Names(t, "parameters.txt", []string{ParamEncrypted, ParamConsistency})
}
