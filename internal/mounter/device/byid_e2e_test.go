//go:build e2e

package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// plug makes a loop device of a new file of this name and returns the kernel's name of it.
func plug(t *testing.T, file string, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), file)
	img, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = img.Close() }()
	if err := img.Truncate(size); err != nil {
		t.Fatal(err)
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = control.Close() }()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatal(err)
		}
		name := "loop" + strconv.Itoa(n)
		dev, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
		if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) { // another package makes the free ones new
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &unix.LoopConfig{Fd: uint32(img.Fd())})
		if errors.Is(err, unix.EBUSY) { // another test was faster
			_ = dev.Close()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
				t.Errorf("detach %s: %v", name, err)
			}
			_ = dev.Close()
		})
		return name
	}
}

func relink(t *testing.T, dir, name, kernel string) {
	t.Helper()
	temporary := filepath.Join(dir, ".new")
	if err := errors.Join(os.Symlink("/dev/"+kernel, temporary), os.Rename(temporary, filepath.Join(dir, name))); err != nil {
		t.Fatal(err)
	}
}

// F2, F10: the link is resolved again until its device is the volume's, and that descriptor is used.
func TestByIDOpensARealDevice(t *testing.T) {
	const size = 8 << 20
	dir := t.TempDir()
	b := NewByID(ByIDConfig{DeviceDir: dir})
	spec := Spec{Volume: "v1", Name: "cloud_vol-1", Size: size}

	// F10: the link is there but leads to another disk; the right one comes later, without a link.
	relink(t, dir, spec.Name, plug(t, "cloud_other.img", size))
	if _, err := b.Lookup(t.Context(), spec); !errors.Is(err, fault.NotFound) {
		t.Fatalf("Lookup by a stale link = %v, want %v", err, fault.NotFound)
	}
	plugged := make(chan string, 1)
	timer := time.AfterFunc(3*rescanEvery, func() { plugged <- plug(t, "cloud_vol-1.img", size) })
	defer timer.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	dev, err := b.Open(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dev.Close() }()
	kernel := <-plugged
	if dev.Path() != "/dev/"+kernel {
		t.Errorf("Open = %s, want /dev/%s", dev.Path(), kernel)
	}
	if got, err := dev.Size(); got != size || err != nil {
		t.Errorf("Size = %d, %v, want %d", got, err, size)
	}

	t.Run("a size above the device's is refused", func(t *testing.T) {
		if _, err := b.Open(t.Context(), Spec{Volume: "v1", Name: spec.Name, Size: size + 1}); !errors.Is(err, fault.Precondition) {
			t.Errorf("Open = %v, want %v", err, fault.Precondition)
		}
	})
	t.Run("the usual directory takes no loop device", func(t *testing.T) {
		real := NewByID(ByIDConfig{})
		real.deviceDir = dir // only the place differs, not what is allowed
		if _, err := real.Lookup(t.Context(), spec); err == nil {
			t.Error("Lookup of a loop device succeeded")
		}
	})
	t.Run("a link that moves on after the open is noticed", func(t *testing.T) {
		relink(t, dir, spec.Name, kernel)
		dev, err := b.Open(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = dev.Close() }()
		if err := dev.Verify(t.Context()); err != nil {
			t.Errorf("Verify before = %v", err)
		}
		relink(t, dir, spec.Name, plug(t, "cloud_other.img", size))
		if err := dev.Verify(t.Context()); !errors.Is(err, fault.Unavailable) {
			t.Errorf("Verify after = %v, want %v", err, fault.Unavailable)
		}
	})
	t.Run("release and growth leave the disk as it is", func(t *testing.T) {
		if got, err := b.Grow(t.Context(), spec, 2*size); got != size || err != nil {
			t.Errorf("Grow = %d, %v, want %d", got, err, size)
		}
		if err := b.Release(t.Context(), spec); err != nil {
			t.Errorf("Release = %v", err)
		}
		if err := b.Release(t.Context(), Spec{Volume: "gone", Name: "cloud_gone"}); err != nil {
			t.Errorf("Release of a disk that is not here = %v, want nil", err)
		}
	})
}
