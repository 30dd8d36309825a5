package mounter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// errInUse says that something else holds the device exclusively: a mount in whatever mount
// namespace, a device-mapper table, or a mkfs or fsck.
var errInUse = errors.New("the device is in use")

// reopen opens the same device again through its descriptor, never through a name.
func reopen(dev *os.File, mode int) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", dev.Fd()), unix.O_CLOEXEC|mode, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, fmt.Errorf("%s: %w: %w", dev.Name(), fault.DeviceInUse, errInUse)
	case err != nil:
		return nil, fmt.Errorf("open %s again: %w: %w", dev.Name(), fault.DeviceUnreadable, err)
	}
	return os.NewFile(uintptr(fd), dev.Name()), nil
}

// opened is a device that is read and written through the kernel's cache.
type opened struct{ *os.File }

// Flush writes everything to the device itself and forgets cached data.
func (o opened) Flush() error {
	if err := o.Sync(); err != nil {
		return fmt.Errorf("write cached data to %s: %w: %w", o.Name(), fault.DeviceUnreadable, err)
	}
	if err := unix.IoctlSetInt(int(o.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return fmt.Errorf("drop cached data of %s: %w: %w", o.Name(), fault.DeviceUnreadable, err)
	}
	return nil
}

// exclusive is a device opened with O_EXCL, which the kernel grants to one holder only. What is
// read through it comes from the device and not from a cache that an earlier disk left behind. It is open for reading
// only: when a descriptor for writing is closed, udev reads the whole device anew.
type exclusive struct{ opened }

// Close releases the device. A child that another goroutine has just forked holds a copy
// of every descriptor until it executes its program, and while one holds the device e2fsck and mount
// find it in use; the lock keeps out of those moments.
func (x exclusive) Close() error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return x.File.Close()
}

// A device that is not in use is held for moments all the same, see runAlone.
var untilUnused = wait.Every(20*time.Millisecond, 10)

// openExclusive opens the device exclusively and drops everything cached about it. A holder that
// stays is errInUse.
func openExclusive(ctx context.Context, dev *os.File) (exclusive, error) {
	x, err := hold(ctx, dev)
	if err != nil {
		return exclusive{}, err
	}
	if err := x.Flush(); err != nil {
		_ = x.Close()
		return exclusive{}, err
	}
	return x, nil
}

// hold is openExclusive for a caller that reads nothing through it: the cache stays.
func hold(ctx context.Context, dev *os.File) (exclusive, error) {
	var f *os.File
	inUse := func(err error) bool { return errors.Is(err, errInUse) }
	err := untilUnused.Retry(ctx, inUse, func() (err error) {
		f, err = reopen(dev, unix.O_RDONLY|unix.O_EXCL)
		return err
	})
	return exclusive{opened{f}}, err
}
