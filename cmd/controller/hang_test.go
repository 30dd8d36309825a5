package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// L9: the sub-command "volumes" lists the other pools while a process that hangs has the lock of one.
func TestVolumesListsThePoolsThatDoNotHang(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	table := mounts.Table(t, a, b)
	synctest.Test(t, func(t *testing.T) {
		set, err := pools.Open(t.Context(), pool.Config{Name: "a", Dir: a, Node: "n", MountTable: table}, pool.Config{Name: "b", Dir: b, Node: "n", MountTable: table})
		ok(t, err)
		healthy, err := set.Named(t.Context(), "b")
		ok(t, err)
		_, err = healthy.Create(t.Context(), pool.NewVolume{Name: "v", Size: pool.SmallestVolume})
		ok(t, err)
		unlock, err := pool.NewLock(a).Acquire(t.Context())
		ok(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		rows, missing := poolInventory{set}.list(ctx)
		if took := time.Since(began); len(rows) != 1 || fault.ReasonOf(missing) != fault.PoolUnusable || took > 30*time.Second {
			t.Errorf("list = %+v, %v after %s, want the volume of the other pool and %s", rows, missing, took, string(fault.PoolUnusable))
		}
		unlock()
		time.Sleep(time.Second) // what has waited ends
	})
}
