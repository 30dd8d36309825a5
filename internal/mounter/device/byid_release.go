package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Release proves that no program on this machine has the disk mounted or in exclusive use any more, in whatever mount
// namespace, and writes what is cached to it: the cloud is about to detach it. fault.Busy while a program has
// it. A disk that is not here any more needs nothing.
func (b *ByID) Release(ctx context.Context, spec Spec) error {
	dev, err := b.Lookup(ctx, Spec{Volume: spec.Volume, Name: spec.Name, Serial: spec.Serial})
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(dev.flushAlone(ctx), dev.Close())
}

// flushAlone writes what is cached to a disk that no other program holds. A filesystem that is mounted somewhere, which
// this program need not see, keeps data of its own that no flush of the disk writes.
func (d *Device) flushAlone(ctx context.Context) error {
	var alone *os.File
	busy := func(err error) bool { return errors.Is(err, unix.EBUSY) }
	err := untilReleased.Retry(ctx, busy, func() error {
		fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", d.file.Fd()), unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
		alone = os.NewFile(uintptr(fd), d.path)
		return err
	})
	switch {
	case busy(err):
		return fmt.Errorf("%s of volume %s is unmounted here but in use still: %w: %s", d.path, d.spec.Volume, fault.Busy, holderOf(d.number))
	case err != nil:
		return fmt.Errorf("open %s of volume %s alone: %w: %w", d.path, d.spec.Volume, fault.Unavailable, err)
	}
	return d.flush(alone)
}

// holderOf says what may have a device that is in exclusive use, and the command that finds it.
func holderOf(number uint64) string {
	return fmt.Sprintf("a program with mounts of its own has it (on the machine, `grep -l ' %d:%d ' /proc/[0-9]*/mountinfo` finds it; end it, "+
		"and let its volumes have mountPropagation: HostToContainer), or LVM or an array is built on it", unix.Major(number), unix.Minor(number))
}

// flush writes what is cached and releases the disk: for good, since a child that another goroutine has just
// forked holds a copy of every descriptor until it executes its program.
func (d *Device) flush(alone *os.File) error {
	err := alone.Sync()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err = errors.Join(err, alone.Close()); err != nil {
		return fmt.Errorf("flush %s of volume %s: %w: %w", d.path, d.spec.Volume, fault.Unavailable, err)
	}
	return nil
}
