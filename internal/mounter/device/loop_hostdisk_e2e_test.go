//go:build e2e

package device

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// mkfs has the command that makes each filesystem a pool can lie on.
var mkfs = map[string][]string{
	"ext4": {"mkfs.ext4", "-q", "-F"},
	"xfs":  {"mkfs.xfs", "-q", "-f"},
}

// command runs a program that must succeed.
var command = expect.Run

// commandOutput runs a program that may fail.
func commandOutput(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	return string(out), err
}

// hostDisk mounts a small filesystem of its own, for a pool to lie on.
func hostDisk(t *testing.T, fs string, size int64) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, size))
	command(t, mkfs[fs][0], append(mkfs[fs][1:], image)...)
	command(t, "mount", "-o", "loop", image, dir)
	t.Cleanup(func() { must(t, mounts.Unmount(dir)) })
	return dir
}

func onEveryFilesystem(t *testing.T, test func(t *testing.T, dir string)) {
	for fs := range mkfs {
		t.Run(fs, func(t *testing.T) { test(t, hostDisk(t, fs, 1<<30)) })
	}
}

// fill writes a foreign file until the disk below the pool has no byte left.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "foreign"))
	must(t, err)
	defer func() { _ = f.Close() }()
	noise := make([]byte, mib)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for chunk := noise; len(chunk) >= 4096; {
		if _, err := f.Write(chunk); errors.Is(err, unix.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// openToWrite opens a device as a pod with a raw block volume does.
func openToWrite(t *testing.T, d *Device) *os.File {
	t.Helper()
	f, err := os.OpenFile(d.Path(), os.O_RDWR, 0)
	must(t, err)
	return f
}

// write writes to a device, and flushes nothing.
func write(t *testing.T, d *Device, data []byte, at int64) {
	t.Helper()
	f := openToWrite(t, d)
	_, err := f.WriteAt(data, at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatalf("write at %d: %v", at, err)
	}
}

// pour writes random bytes over the whole device and returns their hash.
func pour(t *testing.T, d *Device, size int64) [sha256.Size]byte {
	t.Helper()
	f := openToWrite(t, d)
	defer func() { _ = f.Close() }()
	var seed [32]byte
	seed[0] = byte(rand.Uint32())
	src, hash := rand.NewChaCha8(seed), sha256.New()
	buf := make([]byte, mib)
	for at := int64(0); at < size; at += mib {
		_, _ = src.Read(buf)
		hash.Write(buf)
		if _, err := f.WriteAt(buf, at); err != nil {
			t.Fatalf("write at %d of %d: %v", at, size, err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatalf("flush: %v", err)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

func hashOf(t *testing.T, d *Device, size int64) [sha256.Size]byte {
	t.Helper()
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(d.File(), 0, size)); err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// L6: the space of a volume is its own: a foreign file that fills the disk takes none of it, neither for the first write
// nor for overwriting.
func TestVolumeWritesSucceedOnAFullHostDisk(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, dir string) {
		const size = 200 * mib
		r := newRig(t, dir)
		c := r.create(t, "a", size)
		d := r.open(t, c)
		// A filesystem inside gives blocks back when it can: when it is made, and when it is trimmed.
		if err := exec.Command("blkdiscard", d.Path()).Run(); err == nil {
			t.Error("the device accepts discards")
		}
		fill(t, dir)
		for range 2 {
			pour(t, d, size)
		}
		want := pour(t, d, size)
		must(t, d.Close())
		wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
		again := r.open(t, c)
		if hashOf(t, again, size) != want {
			t.Error("the volume does not hold what was written")
		}
		if _, err := r.Grow(t.Context(), c, size+mib); fault.Of(err) != fault.OutOfRange {
			t.Errorf("Grow on a full disk = %v, want %v", err, fault.OutOfRange)
		}
		if now, err := again.Size(); err != nil || now != size {
			t.Errorf("after a refused Grow the device has %d bytes, %v", now, err)
		}
		_ = again.Close()
		wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
	})
}

// L1: a write past the size stops at the byte, and the neighbour in the same pool does not notice.
func TestWriteStopsAtTheByteLimitWhileANeighbourWrites(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, dir string) {
		const size = 64 * mib
		r := newRig(t, dir)
		a, b := r.create(t, "a", size), r.create(t, "b", size)
		da, db := r.open(t, a), r.open(t, b)

		fa, fb := openToWrite(t, da), openToWrite(t, db)
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- scribble(fb, size, stop) }()

		// os.File.WriteAt does not tell how much of a write that failed was written.
		fd := int(fa.Fd())
		if n, err := unix.Pwrite(fd, bytes.Repeat([]byte{0xAA}, 2*mib), size-mib-3); n != mib+3 || err != nil {
			t.Errorf("a write across the end = %d, %v, want it to stop after %d", n, err, mib+3)
		}
		if n, err := unix.Pwrite(fd, []byte{0xAA}, size); n > 0 || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("a write at the end = %d, %v, want %v", n, err, unix.ENOSPC)
		}
		if err := errors.Join(fa.Sync(), fa.Close()); err != nil {
			t.Error(err)
		}
		fillFilesystem(t, da)
		close(stop)
		if err := errors.Join(<-done, fb.Close()); err != nil {
			t.Errorf("the neighbour's write failed: %v", err)
		}
		for _, c := range []Spec{a, b} {
			e, err := r.pool.Get(t.Context(), idOf(t, c))
			if err != nil || e.Size != size || e.Kind != pool.Whole {
				t.Errorf("volume = %+v, %v, want its size unchanged", e, err)
			}
		}
		_, _ = da.Close(), db.Close()
		wantKind(t, "Release", r.Release(t.Context(), a), fault.None)
		wantKind(t, "Release", r.Release(t.Context(), b), fault.None)
	})
}

// scribble overwrites a device again and again, each time to the disk, until stop is closed.
func scribble(f *os.File, size int64, stop <-chan struct{}) error {
	buf := bytes.Repeat([]byte{0xBB}, mib)
	for at := int64(0); ; at = (at + mib) % size {
		if _, err := f.WriteAt(buf, at); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// fillFilesystem puts a filesystem on the device and writes a file until the volume is full.
func fillFilesystem(t *testing.T, d *Device) {
	t.Helper()
	command(t, "mkfs.ext4", "-q", "-F", d.Path())
	dir := t.TempDir()
	command(t, "mount", d.Path(), dir)
	defer func() { must(t, mounts.Unmount(dir)) }()
	f, err := os.Create(filepath.Join(dir, "big"))
	must(t, err)
	defer func() { _ = f.Close() }()
	for n := 0; ; n++ {
		_, err := f.Write(make([]byte, mib))
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		if err != nil || n > 512 {
			t.Fatalf("after %d MiB: %v, want %v", n, err, unix.ENOSPC)
		}
	}
	if err := f.Sync(); err != nil {
		t.Errorf("what was accepted did not reach the disk: %v", err)
	}
}

// L6: a volume whose blocks the filesystem has freed gets its reservation back.
func TestReservationComesBackAfterTheFilesystemGaveItUp(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, dir string) {
		const size = 200 * mib
		r := newRig(t, dir)
		c := r.create(t, "a", size)
		free, err := r.pool.Free(t.Context())
		must(t, err)
		d := r.open(t, c)
		fillFilesystem(t, d)
		_ = d.Close()
		image, err := os.OpenFile(r.pool.ImagePath(idOf(t, c)), os.O_RDWR, 0)
		must(t, err)
		// Whatever found a way to punch holes.
		must(t, unix.Fallocate(int(image.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 100*mib, 80*mib))
		_ = image.Close()
		if now, err := r.pool.Free(t.Context()); err != nil || now > free+mib {
			t.Errorf("Free with holes = %d, %v, was %d: the promise is forgotten", now, err, free)
		}
		wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
		if e, err := r.pool.Get(t.Context(), idOf(t, c)); err != nil || e.Allocated < size {
			t.Errorf("after Release %d of %d bytes are reserved, %v", e.Allocated, size, err)
		}
	})
}

func TestNeverWrittenIsTrueOnlyBeforeTheFirstWrite(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, dir string) {
		r := newRig(t, dir)
		c := r.create(t, "a", 32*mib)
		d := r.open(t, c)
		if blank, err := r.NeverWritten(t.Context(), d); err != nil || !blank {
			t.Errorf("NeverWritten of a fresh volume = %v, %v, want true", blank, err)
		}
		// One byte in the device's cache, not flushed.
		write(t, d, []byte{1}, 17*mib)
		if blank, err := r.NeverWritten(t.Context(), d); err != nil || blank {
			t.Errorf("NeverWritten after a write = %v, %v, want false", blank, err)
		}
		_ = d.Close()
		wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
	})
}

func TestGrowReachesTheDevice(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, dir string) {
		r := newRig(t, dir)
		c := r.create(t, "a", 32*mib)
		d := r.open(t, c)
		want := pour(t, d, 32*mib)
		for _, size := range []int64{64 * mib, 64 * mib, 16 * mib} {
			if got, err := r.Grow(t.Context(), c, size); err != nil || got != 64*mib {
				t.Errorf("Grow to %d = %d, %v, want 64 MiB", size, got, err)
			}
			if got, err := d.Size(); err != nil || got != 64*mib {
				t.Errorf("the open device has %d bytes, %v, want 64 MiB", got, err)
			}
		}
		if hashOf(t, d, 32*mib) != want {
			t.Error("the data changed")
		}
		// The node was killed between the image and the device.
		if _, err := r.pool.Grow(t.Context(), idOf(t, c), 96*mib); err != nil {
			t.Fatal(err)
		}
		if again := r.open(t, c); again.Verify(t.Context()) == nil {
			if got, err := again.Size(); err != nil || got != 96*mib {
				t.Errorf("after Open the device has %d bytes, %v, want 96 MiB", got, err)
			}
			_ = again.Close()
		}
		_ = d.Close()
		wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
		if got, err := r.Grow(t.Context(), c, 100*mib); err != nil || got != 100*mib {
			t.Errorf("Grow of a detached volume = %d, %v, want 100 MiB", got, err)
		}
	})
}
