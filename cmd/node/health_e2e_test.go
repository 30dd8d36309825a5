//go:build e2e

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// TestHealthOfThePool: problems of an image or its record show in the volume's health, problems of the pool's disk in the
// storage's.
func TestHealthOfThePool(t *testing.T) {
	dir := tempDir(t)
	disk, mountpoint := filepath.Join(dir, "disk"), filepath.Join(dir, "host")
	must(t, os.WriteFile(disk, nil, 0o600))
	must(t, os.Truncate(disk, 512<<20))
	must(t, os.Mkdir(mountpoint, 0o700))
	command(t, "mkfs.ext4", "-q", disk)
	command(t, "mount", "-o", "loop", disk, mountpoint)
	t.Cleanup(func() { _ = unix.Unmount(mountpoint, unix.MNT_DETACH) }) // detaches its loop device too
	pools, err := pools.Open(t.Context(), pool.Config{Dir: mountpoint, Node: "node-a"})
	must(t, err)
	named, err := pools.Named(t.Context(), pool.DefaultName)
	must(t, err)
	store := named.(*files.Pool)
	h := poolHealth{pools: pools, node: "node-a", mounts: mount.New(mount.Config{})}
	reasons := func(found []mount.Health, err error) string {
		t.Helper()
		must(t, err)
		var all []string
		for _, f := range found {
			all = append(all, f.Reason)
		}
		return strings.Join(all, " ")
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	r, err := store.Create(t.Context(), pool.NewVolume{Name: "v", Size: 32 << 20})
	must(t, err)
	id := store.Handle(r.ID).String()
	image, record := store.ImagePath(r.ID), strings.TrimSuffix(store.ImagePath(r.ID), ".img")+".json"
	want("a sound volume", reasons(h.Volume(t.Context(), id)), "")
	want("a sound pool", reasons(h.Storage(t.Context())), "")
	must(t, os.Rename(record, mountpoint+"/record"))
	want("without its record", reasons(h.Volume(t.Context(), id)), "RecordMissing")
	must(t, os.Rename(mountpoint+"/record", record))
	must(t, os.Rename(image, mountpoint+"/kept"))
	want("without its image", reasons(h.Volume(t.Context(), id)), "ImageMissing")
	must(t, os.WriteFile(image, nil, 0o600))
	want("with an empty image", reasons(h.Volume(t.Context(), id)), "ImageEmpty")
	must(t, os.Truncate(image, 1<<20))
	want("with a part of its image", reasons(h.Volume(t.Context(), id)), "Damaged")
	must(t, os.Rename(mountpoint+"/kept", image))
	want("with everything back", reasons(h.Volume(t.Context(), id)), "")

	free, err := store.Free(t.Context())
	must(t, err)
	_, err = store.Create(t.Context(), pool.NewVolume{Name: "rest", Size: free >> 20 << 20})
	must(t, err)
	_ = os.WriteFile(mountpoint+"/foreign", make([]byte, 2<<20), 0o600) // uses the free space that is smaller than a step
	want("a full pool", reasons(h.Storage(t.Context())), "PoolFull")
	must(t, unix.Mount("", mountpoint, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	want("a pool on a disk that turned read-only", reasons(h.Storage(t.Context())), "PoolUnavailable")
	if got, err := h.Storage(t.Context()); err != nil || got[0].Severity != mount.Inaccessible {
		t.Errorf("Storage = %v, %v, want it inaccessible", got, err)
	}
}

// TestHealthAndDeadMountsOverTheSocket: the real program reports the health, and counts a dead mount that it finds.
func TestHealthAndDeadMountsOverTheSocket(t *testing.T) {
	v := stagedVolume(t, "ext4")
	ask := func() []*csi.VolumeHealth_VolumeHealthEntry {
		t.Helper()
		answer, err := v.client.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: v.store.Handle(v.id).String()})
		must(t, err)
		return answer.GetVolumeHealth().GetHealthStatuses()
	}
	if got := ask(); len(got) > 0 {
		t.Errorf("health of a sound volume = %v", got)
	}
	if answer, err := v.client.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{}); err != nil || len(answer.GetBackendHealth()) > 0 {
		t.Errorf("health of a sound pool = %v, %v", answer, err)
	}
	dir, err := os.Open(v.staging)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(int(dir.Fd()), 0x8004587d, 2)) // shuts down the filesystem, as the loss of its device does
	must(t, dir.Close())
	if got := ask(); len(got) != 1 || got[0].GetStatus() != csi.VolumeHealthErrorType_INACCESSIBLE {
		t.Errorf("health of a dead mount = %v, want it inaccessible", got)
	}
	if err := v.stage("ext4"); err == nil {
		t.Error("stage onto a dead mount succeeded")
	}
	if got := v.metric("cloudblock_dead_mounts_found_total"); got != "1" {
		t.Errorf("cloudblock_dead_mounts_found_total = %q, want 1", got)
	}
	v.gone()
}

// metric reads one metric of the running program.
func (v *staged) metric(name string) string {
	v.t.Helper()
	_, page := drivertest.Page(v.t, "http://"+v.http+"/metrics")
	for line := range strings.Lines(metrics.Unnamed(page)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
