package controller_test

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
)

// cloning is a cloud whose snapshots are all temporary ones of clones, except for one.
type cloning struct {
	cloud.Cloud

	but cloud.SnapshotID
}

func (c cloning) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	list, err := c.Cloud.ListSnapshots(ctx, of, page)
	for i := range list.Snapshots {
		list.Snapshots[i].Mark.Temporary = list.Snapshots[i].ID != c.but
	}
	return list, err
}

// No request has asked for the temporary snapshots of clones, so no list has them, and each page leads to the next.
func TestListsHaveNoTemporarySnapshot(t *testing.T) {
	r := start(t, memory.Config{})
	origin := r.make(t, "origin").GetVolumeId()
	var last string
	for _, name := range []string{"a", "b", "c"} {
		answer, err := r.CreateSnapshot(ctxOf(t), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: origin})
		must(t, err)
		last = answer.GetSnapshot().GetSnapshotId()
	}
	service := controller.New(cloning{r.cloud, cloud.SnapshotID(last)}, r.names)
	var listed []string
	for token := ""; ; {
		list, err := service.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{MaxEntries: 1, StartingToken: token})
		must(t, err)
		for _, e := range list.GetEntries() {
			listed = append(listed, e.GetSnapshot().GetSnapshotId())
		}
		if token = list.GetNextToken(); token == "" {
			break
		}
	}
	if len(listed) != 1 || listed[0] != last {
		t.Errorf("the list has %q, want only %s", listed, last)
	}
}
