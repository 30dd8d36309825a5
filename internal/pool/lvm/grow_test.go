package lvm

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

// L9: a growth that ends before a command of LVM does shares nothing with what still runs (go test -race).
func TestGrowOnADiskThatHangs(t *testing.T) {
	host := lvm.New(gib)
	var hangs atomic.Bool
	hang := make(chan struct{})
	host.Hook = func(args []string) {
		if hangs.Load() && args[0] == "lvs" {
			<-hang
		}
	}
	p := openPool(t, host.Config(t))
	r := mustCreate(t, p, "a", 16<<20)
	hangs.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	go func() {
		<-ctx.Done()
		close(hang)
	}()
	if _, err := p.Grow(ctx, r.ID, 8<<20); err != nil {
		wantKind(t, "Grow", err, fault.Uncertain)
	}
	must(t, p.Close(t.Context()))
}

// The id of a snapshot that has the digits of a growing volume is that of nothing.
func TestDeleteOfASnapshotLeavesAGrowthAlone(t *testing.T) {
	host, p := groupPool(t)
	vol := mustCreate(t, p, "a", 16<<20)
	group := host.Groups()[0]
	group.Volumes = append(group.Volumes, &lvm.Volume{Name: growthName(vol.ID), UUID: "g-1", Extents: []int{100}, Tags: []string{creatingTag}})
	wantKind(t, "DeleteSnapshot", p.DeleteSnapshot(t.Context(), vol.ID), fault.NotFound)
	wantKind(t, "RemoveSnapshot", p.RemoveSnapshot(t.Context(), vol.ID), fault.NotFound)
	if len(group.Volumes) != 2 {
		t.Errorf("%d logical volumes are left, want the volume and its growth", len(group.Volumes))
	}
}
