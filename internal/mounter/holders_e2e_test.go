//go:build e2e

package mounter_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// A4: the bind of a raw device's node outlives the disk, and the next disk may get its number. It holds nothing then.
func TestTheNodeOfADiskThatHasGoneHoldsNothing(t *testing.T) {
	t.Parallel()
	m, dev := newMachine(), newLoop(t, small)
	dir := filepath.Join(t.TempDir(), "dev")
	noError(t, os.Mkdir(dir, 0o700))
	noError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	node, target := filepath.Join(dir, "vdb"), filepath.Join(dir, "published")
	noError(t, errors.Join(unix.Mknod(node, unix.S_IFBLK|0o600, int(dev.number)), os.WriteFile(target, nil, 0o600)))
	noError(t, unix.Mount(node, target, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	if got, err := m.Holders(dev.number); err != nil || !slices.Equal(got, []string{target}) {
		t.Errorf("Holders = %v, %v, want %s", got, err, target)
	}
	noError(t, os.Remove(node))
	if got, err := m.Holders(dev.number); err != nil || len(got) > 0 {
		t.Errorf("Holders = %v, %v when the node has gone, want none", got, err)
	}
}

// The next file that a loop device without one gets is another disk: the bind of its node holds nothing and is dead.
func TestTheNodeOfALoopDeviceWithoutAFileHoldsNothing(t *testing.T) {
	t.Parallel()
	m, dev, target := newMachine(), newLoop(t, small), filepath.Join(t.TempDir(), "published")
	noError(t, m.BindDevice(t.Context(), dev, target, false))
	sys := t.TempDir() // here the kernel lists the device without a file
	noError(t, os.MkdirAll(fmt.Sprintf("%s/dev/block/%d:%d", sys, unix.Major(dev.number), unix.Minor(dev.number)), 0o700))
	cleared := machineWith(mount.Config{Sysfs: host.Sysfs(sys)})
	for want, m := range map[mount.Use]*machine{mount.Ours: m, mount.Dead: cleared} {
		got, err := m.lookAt(target, dev.number)
		holders, holdersErr := m.Holders(dev.number)
		if err := errors.Join(err, holdersErr); err != nil || got.Use != want || !got.Block || (len(holders) > 0) != (want == mount.Ours) {
			t.Errorf("the bind is %+v and the holders are %v, %v, want use %d", got, holders, err, want)
		}
	}
	takeDown(t, m, dev, target)
}
