package main

import (
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/lvm"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/snapshots"
)

// The metrics of the pools show their current volumes, snapshots, reservations and problems.
func TestTheMetricsOfThePools(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pool")
	ok(t, os.Mkdir(dir, 0o700))
	l, err := local.New(t.Context(), local.Config{Pools: []pool.Config{{Dir: dir, MountTable: mounts.Table(t, dir)}}, Node: "n-1"})
	ok(t, err)
	registry := prometheus.NewRegistry()
	ok(t, register(registry, newPoolMetrics(l.Usage, zap.NewNop())))
	const volumes, copies = `cloudblock_pool_volumes{pool="default"}`, `cloudblock_pool_snapshots{pool="default"}`
	const missing, size, free = `cloudblock_volume_abnormal{reason="RecordMissing"}`, `cloudblock_pool_size_bytes{pool="default"}`, `cloudblock_pool_free_bytes{pool="default"}`
	empty := metrics.Of(t, registry)
	empty.Want(t, metrics.Samples{
		volumes: 0, copies: 0, missing: 0, `cloudblock_pool_reserved_bytes{pool="default"}`: 0, `cloudblock_volume_abnormal{reason="ImageMissing"}`: 0,
	})
	if empty[free] <= 0 || empty[size] <= empty[free] {
		t.Errorf("a new pool of %v bytes has %v free", empty[size], empty[free])
	}
	var made cloud.Volume
	for _, name := range []string{"a", "b"} {
		if made, err = l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: name, Size: 64 * cloud.MiB}); err != nil {
			t.Fatal(err)
		}
	}
	// Reserved is the space that the pool keeps for a volume whose image has lost its blocks, as by a discard in the volume.
	image := filepath.Join(dir, "volumes", path.Base(string(made.ID))+".img")
	ok(t, errors.Join(os.Truncate(image, 0), os.Truncate(image, int64(made.Size))))
	metrics.Of(t, registry).Want(t, metrics.Samples{`cloudblock_pool_reserved_bytes{pool="default"}`: float64(made.Size)})
	if _, err = snapshots.Add(dir, pool.ID(path.Base(string(made.ID))), "s"); err != nil {
		t.Fatal(err)
	}
	held := metrics.Of(t, registry)
	held.Want(t, metrics.Samples{volumes: 2, copies: 1, missing: 0})
	record := filepath.Join(dir, "volumes", path.Base(string(made.ID))+".json")
	ok(t, os.Rename(record, filepath.Join(t.TempDir(), "away")))
	metrics.Of(t, registry).Want(t, metrics.Samples{volumes: 2, copies: 1, missing: 1})
	ok(t, os.Rename(dir, dir+"-gone"))
	if _, has := metrics.Of(t, registry)[volumes]; has {
		t.Error("a pool that is missing has samples")
	}
}

// The metrics of a volume group: the free space in whole extents, and no reservations, because volumes are allocated in full.
func TestTheMetricsOfAVolumeGroup(t *testing.T) {
	host := lvm.New(1 << 30)
	settings := t.TempDir()
	ok(t, errors.Join(os.Mkdir(settings+"/devices", 0o755), os.WriteFile(settings+"/devices/cloudblock-vg", nil, 0o644)))
	l, err := local.New(t.Context(), local.Config{
		Pools: []pool.Config{{Name: "fast", Dir: "lvm:vg", LockDir: t.TempDir(), LVMDir: settings, LVM: host}}, Node: "n-1",
	})
	ok(t, err)
	registry := prometheus.NewRegistry()
	ok(t, register(registry, newPoolMetrics(l.Usage, zap.NewNop())))
	want := func(free, volumes, missing float64) {
		t.Helper()
		metrics.Of(t, registry).Want(t, metrics.Samples{
			`cloudblock_pool_size_bytes{pool="fast"}`: 1 << 30, `cloudblock_pool_free_bytes{pool="fast"}`: free,
			`cloudblock_pool_reserved_bytes{pool="fast"}`: 0, `cloudblock_pool_volumes{pool="fast"}`: volumes,
			`cloudblock_pool_snapshots{pool="fast"}`: 0, `cloudblock_volume_abnormal{reason="RecordMissing"}`: missing,
		})
	}
	const size = 256 << 20
	want(1<<30, 0, 0)
	fast := []cloud.Parameter{{Name: local.ParamPool, Value: "fast"}}
	made, err := l.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: "a", Size: size, Parameters: fast})
	ok(t, err)
	want(3*size, 1, 0)
	host.Volume("cloudblock-" + path.Base(string(made.ID))).Tags = nil
	want(3*size, 1, 1)
	host.Set()
	for sample := range metrics.Of(t, registry) {
		if strings.Contains(sample, `pool="fast"`) {
			t.Errorf("a pool without its disk has the sample %s", sample)
		}
	}
}

// A pool that is open and cannot be listed does not hide the others, and --delete works in those.
func TestVolumesBesideAPoolThatCannotBeListed(t *testing.T) {
	dir, settings := t.TempDir(), t.TempDir()
	ok(t, errors.Join(os.Mkdir(settings+"/devices", 0o755), os.WriteFile(settings+"/devices/cloudblock-vg", nil, 0o644)))
	set, err := pools.Open(t.Context(), pool.Config{Dir: dir, Node: "n1", MountTable: mounts.Table(t, dir)},
		pool.Config{Name: "group", Dir: "lvm:vg", Node: "n1", LockDir: t.TempDir(), LVMDir: settings, LVM: lvm.New(1 << 30)})
	ok(t, err)
	group, err := set.Named(t.Context(), "group")
	ok(t, err)
	made, err := group.Create(t.Context(), pool.NewVolume{Name: "a", Size: pool.SmallestVolume})
	ok(t, err)
	ok(t, errors.Join(os.Remove(dir+"/volumes"), os.WriteFile(dir+"/volumes", nil, 0o600)))

	in, cfg := poolInventory{set}, volumesConfig{remove: group.Handle(made.ID).String()}
	rows, broken := in.list(t.Context())
	if len(rows) != 1 || rows[0].ID != cfg.remove || broken == nil || !strings.Contains(broken.Error(), dir) {
		t.Errorf("list = %+v, %v, want %s, and %s in the error", rows, broken, cfg.remove, dir)
	}
	var out bytes.Buffer
	if err := cfg.removeOne(t.Context(), in, rows, broken, &out); err != nil {
		t.Errorf("--delete = %v", err)
	}
	if left, err := group.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left = %+v, %v", left, err)
	}
}
