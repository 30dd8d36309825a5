//go:build e2e

package device

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// L8: a program that has the node of a loop device, such as a pod with a raw block volume, needs no capability for these
// ioctls. Nothing it does stops the volume from being put away, and the next stage has it whole again.
func TestSettingsThatAPodMadeAreReset(t *testing.T) {
	for name, spoil := range map[string]func(*unix.LoopInfo64){
		"offset":    func(i *unix.LoopInfo64) { i.Offset = 1 * mib },
		"sizelimit": func(i *unix.LoopInfo64) { i.Sizelimit = 4 * mib },
		"partscan":  func(i *unix.LoopInfo64) { i.Flags |= unix.LO_FLAGS_PARTSCAN },
		"autoclear": func(i *unix.LoopInfo64) { i.Flags |= unix.LO_FLAGS_AUTOCLEAR },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, t.TempDir())
			c := r.create(t, "pvc-1", 16*mib)
			d := r.open(t, c)
			want := bytes.Repeat([]byte("precious"), 512)
			write(t, d, want, 0)
			info, err := unix.IoctlLoopGetStatus64(int(d.File().Fd()))
			must(t, err)
			spoil(info)
			must(t, setStatus(d.File(), info))
			must(t, unix.IoctlSetPointerInt(int(d.File().Fd()), unix.BLKROSET, 1))
			t.Cleanup(func() { // a loop device stays read-only for its next file
				if f, err := os.Open(d.Path()); err == nil {
					_, _ = unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, 0), f.Close()
				}
			})

			found, err := r.Lookup(t.Context(), Spec{Volume: c.Volume})
			if err != nil {
				t.Fatalf("Lookup = %v, want the device: it is needed to put the volume away", err)
			}
			if number, err := r.Number(t.Context(), c); number != found.Number() || err != nil {
				t.Errorf("Number = %d, %v, want %d", number, err, found.Number())
			}
			if name == "offset" || name == "sizelimit" {
				wantKind(t, "Verify before a mount", found.Verify(t.Context()), fault.Precondition)
			}

			back := r.open(t, c)
			got := make([]byte, len(want))
			if _, err := back.File().ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the first bytes are %.8q, %v, want %.8q", got, err, want)
			}
			write(t, back, want, 15*mib)
			for setting, want := range map[string]string{"loop/offset": "0", "loop/sizelimit": "0", "loop/autoclear": "0", "ro": "0", "loop/dio": "1"} {
				if got := read(t, "/sys/block/"+filepath.Base(back.Path())+"/"+setting); got != want {
					t.Errorf("%s = %s after Open, want %s", setting, got, want)
				}
			}
			_, _, _ = d.Close(), found.Close(), back.Close()
			wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
		})
	}
}

// L8: settings that were not reset do not keep the volume from being released either.
func TestVolumeThatAPodSpoiltIsReleased(t *testing.T) {
	r := newRig(t, t.TempDir())
	c := r.create(t, "pvc-1", 16*mib)
	d := r.open(t, c)
	info, err := unix.IoctlLoopGetStatus64(int(d.File().Fd()))
	must(t, err)
	info.Offset, info.Sizelimit = 4096, 8192
	must(t, errors.Join(setStatus(d.File(), info), d.Close()))
	wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
	if left := attached(t, c); len(left) > 0 {
		t.Errorf("after Release %v is still attached", left)
	}
}

// L8: a pod detaches its raw block device. Its number must not pass to another volume while the pod still has the node:
// it would have that volume's data.
func TestNumberOfADetachedDeviceIsNotReusedWhileItsNodeIsBound(t *testing.T) {
	for range 10 {
		if !detachWhileBound(t) {
			return
		}
	}
	t.Error("tests of other packages took the number each time")
}

// detachWhileBound reports whether a test of another package, which does not look for bound nodes, took the free number.
func detachWhileBound(t *testing.T) (taken bool) {
	t.Helper()
	dir := t.TempDir()
	r := newRig(t, dir)
	first, second, third := r.create(t, "a", 16*mib), r.create(t, "b", 16*mib), r.create(t, "c", 16*mib)
	d := r.open(t, first)
	target := filepath.Join(t.TempDir(), "target")
	must(t, os.WriteFile(target, nil, 0o600))
	must(t, unix.Mount(d.Path(), target, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })

	pod, err := os.OpenFile(target, os.O_RDWR, 0)
	must(t, err)
	number := d.Number()
	must(t, unix.IoctlSetInt(int(pod.Fd()), unix.LOOP_CLR_FD, 0))
	_, _ = pod.Close(), d.Close()
	if left := attached(t, first); len(left) > 0 {
		t.Fatalf("%v is still attached; this test proves nothing", left)
	}
	for _, c := range []Spec{second, third} {
		other := r.open(t, c)
		if other.Number() == number {
			t.Fatalf("volume %s got the device %s, whose node the pod of another volume has", c.Volume, other.Path())
		}
	}
	stale, err := os.OpenFile(target, os.O_RDONLY, 0)
	if err == nil {
		n, readErr := stale.ReadAt(make([]byte, 512), 0)
		_ = stale.Close()
		backing, _ := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/loop/backing_file", unix.Major(number), unix.Minor(number)))
		if len(backing) > 0 && !strings.HasPrefix(string(backing), dir) {
			return true
		}
		if n > 0 {
			t.Errorf("the pod still reads %d bytes (%v) from a device that it has detached", n, readErr)
		}
	}
	again := r.open(t, first)
	if again.Number() == number {
		t.Errorf("the volume itself got %s back: its stale bind would show it before it is published", again.Path())
	}
	_ = again.Close()
	wantKind(t, "Release", r.Release(t.Context(), first), fault.None)
	return false
}

// hungDisk makes a loop device of a file of this name, on which open(2) hangs until the end of the test: a process reads
// its partition table again and waits, in the kernel and with the disk's mutex, for a write to a frozen filesystem. The
// filesystem is frozen by a process that thaws it when this one ends, however it ends.
func hungDisk(t *testing.T, file string) (number uint64, thaw func()) {
	t.Helper()
	dir := hostDisk(t, "ext4", 64*mib)
	path := filepath.Join(dir, file)
	must(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 16*mib)))
	name := losetup(t, "-P", "-f", path)
	var st unix.Stat_t
	must(t, unix.Stat(name, &st))
	writer, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	freezer := exec.Command("sh", "-c", `fsfreeze -f "$0" && echo frozen && read x; fsfreeze -u "$0"`, dir)
	hold, err := freezer.StdinPipe()
	must(t, err)
	out, err := freezer.StdoutPipe()
	must(t, err)
	must(t, freezer.Start())
	scan := exec.Command("blockdev", "--rereadpt", name)
	thawed := false
	thaw = func() {
		if thawed {
			return
		}
		thawed = true
		_ = hold.Close()
		if err := freezer.Wait(); err != nil {
			t.Errorf("thaw %s: %v", dir, err)
		}
		if scan.Process != nil {
			_ = scan.Wait()
		}
		_ = writer.Close()
		command(t, "losetup", "-d", name)
	}
	t.Cleanup(thaw)
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteAt(make([]byte, 4096), 0); err != nil { // stays in the page cache
		t.Fatal(err)
	}
	must(t, scan.Start())
	awaitBlocked(t, scan.Process.Pid)
	return st.Rdev, thaw
}

// awaitBlocked waits until a process sleeps in the kernel and cannot be interrupted.
func awaitBlocked(t *testing.T, pid int) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err == nil && bytes.Contains(status, []byte("State:\tD")) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("process %d does not hang: %s", pid, status)
		}
	}
}

// within runs a call that must not hang; a call that does is let go of by thaw.
func within(t *testing.T, what string, thaw func(), call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		t.Errorf("%s hangs: it opened a device that is not its volume's", what)
		thaw()
		return <-done
	}
}

// L9: a foreign disk that hangs stops no volume.
func TestForeignDeviceThatHangsStopsNoVolume(t *testing.T) {
	r := newRig(t, t.TempDir())
	c := r.create(t, "pvc-1", 16*mib)
	_, thaw := hungDisk(t, "foreign.img")
	steps := map[string]func(context.Context) error{
		"Open":    opened(r.Open, c),
		"Lookup":  opened(r.Lookup, c),
		"Number":  func(ctx context.Context) error { _, err := r.Number(ctx, c); return err },
		"Grow":    func(ctx context.Context) error { _, err := r.Grow(ctx, c, 32*mib); return err },
		"Release": func(ctx context.Context) error { return r.Release(ctx, c) },
	}
	for _, what := range []string{"Open", "Lookup", "Number", "Grow", "Release"} {
		if err := within(t, what, thaw, steps[what]); err != nil {
			t.Errorf("%s = %v, want no error", what, err)
		}
	}
}

// L9: one's own device that hangs is an error in time, and stops no other volume.
func TestOwnDeviceThatHangsIsAnErrorInTime(t *testing.T) {
	r := newRig(t, t.TempDir())
	own, other := r.create(t, "own", 16*mib), r.create(t, "other", 16*mib)
	_, thaw := hungDisk(t, idOf(t, own).ImageName())
	for range 2 {
		err := within(t, "Open", thaw, opened(r.Open, own))
		wantKind(t, "Open of a device that hangs", err, fault.Unavailable)
	}
	err := within(t, "Open of another volume", thaw, opened(r.Open, other))
	wantKind(t, "Open of another volume", err, fault.None)
	wantKind(t, "Release", r.Release(t.Context(), other), fault.None)
}

// L9: the disk of one cloud volume hangs; which numbers other specs have is known all the same.
func TestNumberOfACloudDiskThatHangs(t *testing.T) {
	dir := t.TempDir()
	number, thaw := hungDisk(t, "cloud_vol-1.img")
	b := NewByID(ByIDConfig{DeviceDir: dir})
	err := within(t, "Number", thaw, func(ctx context.Context) error {
		got, err := b.Number(ctx, Spec{Volume: "v1", Name: "cloud_vol-1"})
		if got != number {
			t.Errorf("Number = %d, want %d", got, number)
		}
		return err
	})
	wantKind(t, "Number", err, fault.None)
	err = within(t, "Lookup", thaw, opened(b.Lookup, Spec{Volume: "v1", Name: "cloud_vol-1"}))
	wantKind(t, "Lookup of a disk that hangs", err, fault.Unavailable)
}

// opened returns a call that opens a device and closes it.
func opened(open func(context.Context, Spec) (*Device, error), spec Spec) func(context.Context) error {
	return func(ctx context.Context) error {
		d, err := open(ctx, spec)
		if err == nil {
			err = d.Close()
		}
		return err
	}
}
