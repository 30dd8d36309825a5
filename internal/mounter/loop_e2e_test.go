//go:build e2e

package mounter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// loopDevice is a real block device for tests: a loop device over a sparse file.
type loopDevice struct {
	t      *testing.T
	file   *os.File
	back   string
	number uint64
	verify func() error
}

func (d *loopDevice) File() *os.File { return d.file }
func (d *loopDevice) Path() string   { return d.file.Name() }
func (d *loopDevice) Number() uint64 { return d.number }
func (d *loopDevice) Size() (int64, error) {
	size, err := unix.IoctlGetInt(int(d.file.Fd()), unix.BLKGETSIZE64)
	return int64(size), err
}

func (d *loopDevice) Verify(context.Context) error {
	if d.verify != nil {
		return d.verify()
	}
	return nil
}

// newLoop makes a loop device over a new sparse file.
func newLoop(t *testing.T, size int64) *loopDevice {
	t.Helper()
	back := filepath.Join(t.TempDir(), "disk.img")
	f, err := os.Create(back)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	return attach(t, back)
}

// attach makes a loop device over a file. It is detached, and whatever is still mounted of it
// unmounted, when the test ends.
func attach(t *testing.T, back string) *loopDevice {
	t.Helper()
	img, err := os.OpenFile(back, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = img.Close() }()
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
		path := fmt.Sprintf("/dev/loop%d", n)
		dev, err := os.OpenFile(path, os.O_RDWR, 0)
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
		var st unix.Stat_t
		if err := unix.Fstat(int(dev.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		d := &loopDevice{t: t, file: dev, back: back, number: st.Rdev}
		t.Cleanup(d.detach)
		return d
	}
}

// detach gives the loop device back.
func (d *loopDevice) detach() {
	// First of all: without this descriptor the number may be another test's by now, and its mounts.
	if _, err := unix.FcntlInt(d.file.Fd(), unix.F_GETFD, 0); err != nil {
		return // detached by the test itself
	}
	holders, err := newMachine().Holders(d.number)
	if err != nil {
		d.t.Error(err)
	}
	for i := len(holders) - 1; i >= 0; i-- {
		if strings.HasPrefix(holders[i], "/") {
			_ = unix.Unmount(holders[i], unix.MNT_DETACH)
		}
	}
	if err := unix.IoctlSetInt(int(d.file.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		d.t.Errorf("detach %s: %v", d.Path(), err)
	}
	_ = d.file.Close()
}

// grow makes the backing file and the loop device larger.
func (d *loopDevice) grow(size int64) {
	d.t.Helper()
	if err := os.Truncate(d.back, size); err != nil {
		d.t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(d.file.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		d.t.Fatal(err)
	}
}
