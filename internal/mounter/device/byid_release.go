package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Release proves that no program on this machine has the disk mounted or in exclusive use any more, in whatever mount
// namespace, and writes what is cached to it: the cloud is about to detach it. fault.Busy while a program has
// it. A disk that is not here any more needs nothing.
func (b *ByID) Release(ctx context.Context, claim Claim) error {
	dev, err := b.Lookup(ctx, Claim{Volume: claim.Volume, Name: claim.Name, Serial: claim.Serial})
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(dev.flushAlone(ctx), dev.Close())
}

// A filesystem that was unmounted a moment ago, or a disk that a program probes, is released within this time.
const (
	alonePause = 50 * time.Millisecond
	maxAlone   = 20
)

// flushAlone writes what is cached to a disk that no other program holds. A filesystem that is mounted somewhere, which
// this program need not see, keeps data of its own that no flush of the disk writes.
func (d *Device) flushAlone(ctx context.Context) error {
	tick := time.NewTicker(alonePause)
	defer tick.Stop()
	for try := 1; ; try++ {
		fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", d.file.Fd()), unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return d.flush(os.NewFile(uintptr(fd), d.path))
		case !errors.Is(err, unix.EBUSY):
			return fmt.Errorf("open %s of volume %s alone: %w: %w", d.path, d.claim.Volume, fault.Unavailable, err)
		case try == maxAlone:
			return fmt.Errorf("%s of volume %s is unmounted here but in use still: %w: %s", d.path, d.claim.Volume, fault.Busy, holderOf(d.number))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s of volume %s: %w: %w", d.path, d.claim.Volume, fault.Unavailable, ctx.Err())
		}
	}
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
		return fmt.Errorf("flush %s of volume %s: %w: %w", d.path, d.claim.Volume, fault.Unavailable, err)
	}
	return nil
}
