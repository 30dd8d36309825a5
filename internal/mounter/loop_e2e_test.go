//go:build e2e

package mounter_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
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
	noError(t, errors.Join(os.WriteFile(back, nil, 0o600), os.Truncate(back, size)))
	return attach(t, back)
}

// attach makes a loop device over a file. It is detached, and whatever is still mounted of it
// unmounted, when the test ends.
func attach(t *testing.T, back string) *loopDevice {
	t.Helper()
	dev, err := loops.Attach(back)
	noError(t, err)
	var st unix.Stat_t
	noError(t, unix.Fstat(int(dev.Fd()), &st))
	d := &loopDevice{t: t, file: dev, back: back, number: st.Rdev}
	t.Cleanup(d.detach)
	return d
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
	noError(d.t, os.Truncate(d.back, size))
	noError(d.t, unix.IoctlSetInt(int(d.file.Fd()), unix.LOOP_SET_CAPACITY, 0))
}
