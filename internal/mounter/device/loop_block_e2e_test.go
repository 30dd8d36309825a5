//go:build e2e

package device

import (
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// A filesystem that was made on one block size cannot be mounted on another, so a snapshot must not
// change it, neither of the volume nor in its copies.
func TestBlockSizeOfAVolumeNeverChanges(t *testing.T) {
	r := newRig(t, hostDisk(t, "xfs", 1<<30))
	c := r.create(t, "a", 16*mib)
	d := r.open(t, c)
	blocks := func(d *Device) string {
		return read(t, "/sys/block/"+filepath.Base(d.Path())+"/queue/logical_block_size")
	}
	want := blocks(d)
	_ = pour(t, d, 16*mib)
	_ = d.Close()
	wantKind(t, "Release", r.Release(t.Context(), c), "")

	id := idOf(t, c)
	made, err := r.pool.CreateSnapshot(t.Context(), pool.NewSnapshot{Name: "s", Volume: id})
	must(t, err)
	specs := []Spec{c}
	for name, from := range map[string]pool.From{"restored": {Snapshot: made.ID}, "cloned": {Volume: id}} {
		rec, err := r.pool.Create(t.Context(), pool.NewVolume{Name: name, Size: 32 * mib, From: from})
		must(t, err)
		specs = append(specs, Spec{Volume: r.pool.Handle(rec.ID).String()})
	}
	for _, c := range specs {
		d := r.open(t, c)
		if got := blocks(d); got != want {
			t.Errorf("%s has blocks of %s bytes, before the snapshot %s", c.Volume, got, want)
		}
		if got := read(t, "/sys/block/"+filepath.Base(d.Path())+"/loop/dio"); got != "1" {
			t.Errorf("%s is not written around the page cache", c.Volume)
		}
		_ = d.Close()
		wantKind(t, "Release", r.Release(t.Context(), c), "")
	}
}
