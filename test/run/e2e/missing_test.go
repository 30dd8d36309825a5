//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// C14: the machine comes up without the pool's disk. Neither program starts, no pool is made on the disk below, and a
// delete does not succeed. When the disk is back all is there.
func TestPoolWhoseDiskIsNotMounted(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mountpoint := hostDisk(t, dir, "xfs", gib)
	disk := strings.TrimSpace(command(t, "findmnt", "-no", "SOURCE", mountpoint))
	pair := start(t, programs.Options{Dir: dir, Pool: mountpoint})
	v := create(t, pair, programs.Claim{Name: "kept", Filesystem: "ext4", Size: 64 * mib})
	must(t, v.Stage, v.Publish)
	write(t, data(v), 1, 8*mib)
	must(t, v.Unpublish, v.Unstage)
	both := []*programs.Program{pair.Controller, pair.Node}
	for _, p := range both {
		p.Stop()
	}

	noError(t, mounts.Unmount(mountpoint))
	for _, p := range both {
		if err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no filesystem is mounted at "+mountpoint) {
			t.Errorf("start without the pool's disk = %v, want a refusal", err)
		}
	}
	if err := v.Delete(t.Context()); err == nil {
		t.Error("a volume of a pool that is not there was deleted")
	}
	for _, p := range both {
		p.Stop()
	}
	if files, err := os.ReadDir(mountpoint); err != nil || len(files) > 0 {
		t.Errorf("the bare folder holds %v, %v", files, err)
	}

	command(t, "mount", disk, mountpoint)
	for _, p := range both {
		noError(t, p.Start(t.Context()))
	}
	must(t, v.Stage, v.Publish)
	wantBytes(t, data(v), 1, 8*mib)
	must(t, v.Unpublish, v.Unstage, v.Delete)
}
