package lvm

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
)

// A volume group on a disk that does not answer stops no caller for longer than it has patience.
func TestGroupPoolOnADiskThatHangs(t *testing.T) {
	host := lvm.New(gib)
	cfg := host.Config(t)
	hang := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	host.Hook = func(args []string) {
		if args[0] == "lvcreate" {
			cancel()
			<-hang
		}
	}
	p := openPool(t, cfg)
	_, err := p.Create(ctx, pool.NewVolume{Name: "a", Size: 16 << 20})
	wantKind(t, "Create", err, fault.Uncertain)
	close(hang)
	if e, err := p.FindByName(t.Context(), "a"); err != nil || e.Size != 16<<20 {
		t.Errorf("find = %+v, %v, want the volume when the command has ended", e, err)
	}
	must(t, p.Close(t.Context()))
}

// L9: without the lock, too: the calls that a hanging command stops wait as long as they last, and begin no other.
func TestGroupPoolWhoseReadHangs(t *testing.T) {
	host := lvm.New(gib)
	var hangs atomic.Bool
	var begun atomic.Int32
	hang := make(chan struct{})
	host.Hook = func(args []string) {
		if hangs.Load() && args[0] == "vgs" {
			begun.Add(1)
			<-hang
		}
	}
	p := openPool(t, host.Config(t))
	hangs.Store(true)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		wantKind(t, "Check", p.Check(ctx), fault.Uncertain)
		cancel()
	}
	if n := begun.Load(); n != 1 {
		t.Errorf("%d programs were begun, want one", n)
	}
	close(hang)
	must(t, p.Check(t.Context()))
}
