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
	p := openPool(t, configOf(t, host))
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
