//go:build e2e

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// openPublished opens a raw block volume as its pod does.
func (v *volume) openPublished(t *testing.T) *os.File {
	t.Helper()
	return must1(os.OpenFile(v.target, os.O_RDWR, 0))(t)
}

// F11: the node of a loop device takes LOOP_CLR_FD from any process that may write to it. The bind of such a node is
// unpublished and unstaged, and is in the way of no volume.
func TestPodThatClearsItsLoopDevice(t *testing.T) {
	m := newMachine(t, machineConfig{})
	v := m.newVolume("", 64*mib)
	v.ok(v.stage, v.publish)
	loop := loopOf(t, v)
	lock := strings.TrimSpace(sh(t, "losetup", "--find", "--show", v.target)) // as the kubelet holds each raw block volume
	pod := v.openPublished(t)
	must(t, unix.IoctlSetInt(int(pod.Fd()), unix.LOOP_CLR_FD, 0))
	must(t, pod.Close())
	sh(t, "losetup", "--detach", lock)
	foreign := filepath.Join(m.dir, "foreign.img")
	must(t, os.WriteFile(foreign, make([]byte, mib), 0o600))
	_ = exec.Command("losetup", loop, foreign).Run() // where it fails, another program has the number by now

	other, another := m.newVolume("", 64*mib), m.newVolume("ext4", 64*mib)
	v.gone()
	other.ok(other.stage, other.publish)
	another.ok(another.stage, another.publish)
	v.ok(v.stage, v.publish)
	for _, volume := range []*volume{v, other, another} {
		volume.gone()
	}
}

// A4: the bind at the staging path is the volume's own and leads nowhere.
func TestStageAfterItsLoopDeviceWasCleared(t *testing.T) {
	m := newMachine(t, machineConfig{})
	for range 5 {
		v := m.newVolume("", 64*mib)
		v.ok(v.stage)
		loop := loopsBelow(m.dir)[0]
		sh(t, "losetup", "--detach", loop)
		err := v.stage(t.Context())
		if by := backingFile(loop); err != nil && by != "" && by != v.image {
			t.Logf("%s belongs to %s by now: %v", loop, by, err) // of another test, which runs at the same time
			v.gone()
			continue
		}
		must(t, err)
		v.ok(v.publish)
		if got := backingFile("/dev/" + v.kernelName(t)); got != v.image {
			t.Errorf("the published node is a device of %q, want %s", got, v.image)
		}
		v.gone()
		return
	}
	t.Error("other programs took the number of the device each time")
}

// kernelName is what the kernel calls the device whose node is published.
func (v *volume) kernelName(t *testing.T) string {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(v.target, &st))
	link := must1(os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))))(t)
	return filepath.Base(link)
}

// TestPodThatChangesItsLoopDevice: a loop device that shows a part of the volume is not proven to be the volume, and
// is unpublished and unstaged all the same.
func TestPodThatChangesItsLoopDevice(t *testing.T) {
	m := newMachine(t, machineConfig{})
	v := m.newVolume("", 64*mib)
	v.ok(v.stage, v.publish)
	pod := v.openPublished(t)
	info := must1(unix.IoctlLoopGetStatus64(int(pod.Fd())))(t)
	info.Offset = 4096
	must(t, unix.IoctlLoopSetStatus64(int(pod.Fd()), info))
	must(t, pod.Close())
	v.ok(v.unpublish)
	wantCode(t, "publish of a device that shows a part of the volume", v.publish(t.Context()), codes.FailedPrecondition)
	v.gone()
	v.ok(v.stage, v.publish)
	v.gone()
}

// TestNoStageOpensTheDiskOfAnotherVolume: opening a disk that hangs never returns. Here that disk's node is a pipe.
func TestNoStageOpensTheDiskOfAnotherVolume(t *testing.T) {
	d := newLostDisk(t, "ext4") // its volume is on record, and its disk's node is in a folder of the test
	for _, kernel := range []string{d.first, d.second} {
		node := filepath.Join(d.dir, "dev", kernel)
		must(t, os.Remove(node))
		must(t, unix.Mkfifo(node, 0o600))
		t.Cleanup(func() { // what opened it returns
			f, err := os.OpenFile(node, os.O_RDWR|unix.O_NONBLOCK, 0)
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	for _, fs := range []string{"ext4", ""} {
		other := (&cloudMachine{NodeClient: d.NodeClient, t: t, dir: d.dir}).attach("other"+fs, fs, 64*mib)
		d.makeNode(t, strings.TrimPrefix(loopOf(t, other), "/dev/"))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // where it opens the pipe it never ends
		err := errors.Join(other.stage(ctx), other.publish(ctx))
		cancel()
		if err != nil {
			t.Fatalf("stage and publish beside a disk that hangs = %v", err)
		}
		other.goneButForTheDisk()
	}
}

func loopOf(t *testing.T, v *volume) string {
	t.Helper()
	for _, loop := range loopsBelow(v.dir) {
		if backingFile(loop) == v.image {
			return loop
		}
	}
	t.Fatalf("%s has no loop device", v.image)
	return ""
}

// TestBlockStageRefusesADiskThatIsMountedElsewhere: mounts in other mount namespaces are in no table of ours.
func TestBlockStageRefusesADiskThatIsMountedElsewhere(t *testing.T) {
	for _, fs := range []string{"", "ext4"} {
		t.Run(kindName(fs), func(t *testing.T) {
			m := newCloudMachine(t, newDir(t))
			v := m.attach("v1", fs, 64*mib)
			loop := loopOf(t, v)
			sh(t, "mkfs.ext4", "-q", loop)
			at := filepath.Join(m.dir, "machine")
			must(t, os.Mkdir(at, 0o700))
			sh(t, "mount", loop, at)
			leave := hidden(t, at)
			must(t, mounts.Unmount(at))
			wantCode(t, "stage of a disk that the machine has mounted", v.stage(t.Context()), codes.Aborted)
			if left := mountsBelow(t, m.dir); len(left) > 0 {
				t.Errorf("mounted: %v, want nothing", left)
			}
			leave()
			v.ok(v.stage, v.stage, v.publish)
			v.goneButForTheDisk()
		})
	}
}

// TestFailedStageLeavesAnothersMount: where another program mounts the volume while mount(8) runs, mount(8) fails,
// and what is mounted is the other's.
func TestFailedStageLeavesAnothersMount(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			m := newMachine(t, machineConfig{})
			v := m.newVolume(fs, sizeFor(fs))
			v.ok(v.stage, v.unstage)
			path := os.Getenv("PATH")
			wrap(t, `"$real" "$@"; exec "$real" "$@"`, "mount")
			wantCode(t, "stage whose mount failed", v.stage(t.Context()), codes.Aborted)
			if left := mountsBelow(t, v.staging); len(left) != 1 {
				t.Errorf("mounted at the staging path: %v, want the other program's mount", left)
			}
			t.Setenv("PATH", path)
			v.ok(v.stage, v.publish)
			v.gone()
		})
	}
}
