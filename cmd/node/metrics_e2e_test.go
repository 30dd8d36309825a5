//go:build e2e

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// The metrics of a node in the real program: refused formats by their reason, unstages of volumes in use, and the health of the
// volumes that are served.
func TestMetricsOfANode(t *testing.T) {
	v := stagedVolume(t, "ext4")
	id := v.store.Handle(v.id).String()
	want := func(when, series string, want int) {
		t.Helper()
		if got := v.metric(series); got != strconv.Itoa(want) {
			t.Errorf("%s: %s is %q, want %d", when, series, got, want)
		}
	}
	measure := func() {
		t.Helper()
		_, err := v.client.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: v.staging})
		must(t, err)
	}
	const inUse, dead = `cloudblock_refusals_total{reason="CB-UNSTAGE-IN-USE"}`, `cloudblock_volume_abnormal{reason="FilesystemDead"}`
	measure()
	want("sound", dead, 0)
	want("sound", inUse, 0)
	busy, err := os.Create(filepath.Join(v.staging, "open"))
	must(t, err)
	if _, err := v.client.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: v.staging}); err == nil {
		t.Error("unstage with an open file succeeded")
	}
	want("unstage with an open file", inUse, 1)
	must(t, unix.IoctlSetPointerInt(int(busy.Fd()), 0x8004587d, 2)) // shuts down the filesystem, as the loss of its device does
	must(t, busy.Close())
	measure()
	want("a dead filesystem", dead, 1)
	v.gone()
	want("unstaged", dead, 0)
	want("unstaged", inUse, 1)

	image := v.store.ImagePath(v.id)
	command(t, "mkfs.xfs", "-f", "-q", image)
	const found, written = `cloudblock_refusals_total{reason="CB-FORMAT-OTHER-CONTENT"}`, `cloudblock_refusals_total{reason="CB-FORMAT-NOT-BLANK"}`
	if err := v.stage("ext4"); err == nil {
		t.Error("stage of an xfs as ext4 succeeded")
	}
	want("an xfs staged as ext4", found, 1)
	must(t, os.Truncate(image, 0))
	must(t, os.Truncate(image, 320<<20))
	f, err := os.OpenFile(image, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("data"), 1<<20)
	must(t, errors.Join(err, f.Close()))
	if err := v.stage("ext4"); err == nil {
		t.Error("stage of unknown data succeeded")
	}
	want("unknown data", written, 1)
	want("unknown data", found, 1)
	want("at the end", "cloudblock_operation_oldest_seconds", 0)
}
