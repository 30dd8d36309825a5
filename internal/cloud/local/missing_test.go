package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

// C14: while the disk of one pool is missing, what another one refuses for itself is final, and the claim goes to another node.
func TestRefusalsNextToAMissingPool(t *testing.T) {
	dir, group := t.TempDir(), groupPool(t, lvm.New(gib))
	group.Name = "fast"
	c := middleware.Stack(openGroup(t, at(t, dir), group), wait.Backoff{})
	must(t, os.Rename(filepath.Join(dir, "pool.json"), filepath.Join(t.TempDir(), "pool.json")))
	fast := []cloud.Parameter{{Name: "pool", Value: "fast"}}
	for reason, req := range map[fault.Reason]cloud.CreateVolumeRequest{
		fault.PoolFull:        {Name: "large", Size: 2 * cloud.GiB, Parameters: fast},
		fault.SourceElsewhere: {Name: "copy", Size: size, Parameters: fast, Source: cloud.Source{Snapshot: cloud.SnapshotID("n-2/fast/snap-" + strings.Repeat("0", 32))}},
	} {
		_, err := c.CreateVolume(t.Context(), req)
		wantKind(t, "CreateVolume", err, fault.Exhausted)
		wantReason(t, "CreateVolume", err, reason)
	}
	_, err := c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "lost", Size: size})
	wantKind(t, "CreateVolume in the missing pool", err, fault.Uncertain)
}

// C14: a volume group that lacks a disk shows which names it has, so its refusal is final, too.
func TestRefusalOfAVolumeGroupWithoutADisk(t *testing.T) {
	host := lvm.New(gib)
	c := middleware.Stack(openGroup(t, groupPool(t, host)), wait.Backoff{})
	host.Groups()[0].Missing = 1
	_, err := c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "a", Size: size})
	wantKind(t, "CreateVolume", err, fault.Exhausted)
	if fault.ReasonOf(err) != fault.PoolUnusable || !strings.Contains(err.Error(), "lacks 1 disks") {
		t.Errorf("CreateVolume = %v, want what is wrong with the pool", err)
	}
}
