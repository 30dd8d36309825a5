//go:build e2e

package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

// plug makes a loop device of a new file of this name and returns the kernel's name of it.
func plug(t *testing.T, file string, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), file)
	must(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)))
	dev, err := loops.Attach(path)
	must(t, err)
	t.Cleanup(func() {
		if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
			t.Errorf("detach %s: %v", dev.Name(), err)
		}
		_ = dev.Close()
	})
	return filepath.Base(dev.Name())
}

func relink(t *testing.T, dir, name, kernel string) {
	t.Helper()
	temporary := filepath.Join(dir, ".new")
	must(t, errors.Join(os.Symlink("/dev/"+kernel, temporary), os.Rename(temporary, filepath.Join(dir, name))))
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
	must(t, err)
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
		must(t, err)
		defer func() { _ = dev.Close() }()
		wantKind(t, "Verify before", dev.Verify(t.Context()), fault.None)
		relink(t, dir, spec.Name, plug(t, "cloud_other.img", size))
		if err := dev.Verify(t.Context()); !errors.Is(err, fault.Unavailable) {
			t.Errorf("Verify after = %v, want %v", err, fault.Unavailable)
		}
	})
	t.Run("release and growth leave the disk as it is", func(t *testing.T) {
		if got, err := b.Grow(t.Context(), spec, 2*size); got != size || err != nil {
			t.Errorf("Grow = %d, %v, want %d", got, err, size)
		}
		wantKind(t, "Release", b.Release(t.Context(), spec), fault.None)
		wantKind(t, "Release of a disk that is not here", b.Release(t.Context(), Spec{Volume: "gone", Name: "cloud_gone"}), fault.None)
	})
}
