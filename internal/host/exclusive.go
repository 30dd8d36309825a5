package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// ErrInUse is the error if something else has the device open exclusively: a mount in any mount namespace, a device-mapper table,
// or a mkfs or fsck.
var ErrInUse = errors.New("the device is in use")

// Reopen opens the same device again through its descriptor, never through a name.
func Reopen(dev *os.File, mode int) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", dev.Fd()), unix.O_CLOEXEC|mode, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, fmt.Errorf("%s: %w: %w", dev.Name(), fault.DeviceInUse, ErrInUse)
	case err != nil:
		return nil, fmt.Errorf("open %s again: %w: %w", dev.Name(), fault.DeviceUnreadable, err)
	}
	return os.NewFile(uintptr(fd), dev.Name()), nil
}

// Exclusive is a device opened with O_EXCL, which the kernel grants to one holder only. After OpenExclusive, reads through it come
// from the device and not from the cache of an earlier disk. It is open for reading only, because udev reads the whole device again
// when a descriptor for writing is closed.
type Exclusive struct{ *os.File }

// Flush writes cached data to the device and drops the cache.
func (x Exclusive) Flush() error {
	if err := x.Sync(); err != nil {
		return fmt.Errorf("write cached data to %s: %w: %w", x.Name(), fault.DeviceUnreadable, err)
	}
	if err := unix.IoctlSetInt(int(x.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return fmt.Errorf("drop cached data of %s: %w: %w", x.Name(), fault.DeviceUnreadable, err)
	}
	return nil
}

// Close releases the device. A child that another goroutine has just forked has copies of all descriptors until it executes its
// program, and while it has one of the device, e2fsck and mount find the device in use. The lock prevents a close within such a
// fork.
func (x Exclusive) Close() error {
	syscall.ForkLock.RLock()
	release := sync.OnceFunc(syscall.ForkLock.RUnlock)
	defer release()
	defer time.AfterFunc(maxClose, release).Stop()
	return x.File.Close()
}

// maxClose is how long a close prevents forks. The kernel closes a disk after whatever else holds its lock, such as a read of the partition
// table; of a disk that hangs that never ends, and the other volumes need their programs.
const maxClose = time.Second

// untilUnused repeats an exclusive open, because a free device is in use at times too; see RunAlone.
var untilUnused = wait.Every(20*time.Millisecond, 10)

// OpenExclusive opens the device exclusively and drops its cached data. If another holder stays, the error is ErrInUse, which is
// fault.DeviceInUse.
func OpenExclusive(ctx context.Context, dev *os.File) (Exclusive, error) {
	x, err := Hold(ctx, dev)
	if err != nil {
		return Exclusive{}, err
	}
	if err := x.Flush(); err != nil {
		_ = x.Close()
		return Exclusive{}, err
	}
	return x, nil
}

// Hold is OpenExclusive for a caller that does not read through it: the cache stays.
func Hold(ctx context.Context, dev *os.File) (Exclusive, error) {
	var f *os.File
	inUse := func(err error) bool { return errors.Is(err, ErrInUse) }
	err := untilUnused.Retry(ctx, inUse, func() (err error) {
		f, err = Reopen(dev, unix.O_RDONLY|unix.O_EXCL)
		return err
	})
	return Exclusive{f}, err
}

// CheckUnused proves that nothing has the device open exclusively, such as a mount in another mount namespace, which is in no mount
// table of this process. Otherwise it returns fault.Busy.
func CheckUnused(ctx context.Context, dev *os.File, number uint64) error {
	x, err := Hold(ctx, dev)
	if errors.Is(err, ErrInUse) {
		return fmt.Errorf("%w; it is mounted by the machine itself or by a container, in another mount namespace "+
			"(`grep -l ' %d:%d ' /proc/[0-9]*/mountinfo` finds it), or a command works on it", err, unix.Major(number), unix.Minor(number))
	}
	if err != nil {
		return err
	}
	return x.Close()
}

// ReadFull fills buf from offset; a short read is an error.
func ReadFull(r io.ReaderAt, buf []byte, offset int64) error {
	if n, err := r.ReadAt(buf, offset); n < len(buf) {
		return fmt.Errorf("%w: the device cannot be read at offset %d (%d bytes; see the kernel log): %w",
			fault.DeviceUnreadable, offset, len(buf), err)
	}
	return nil
}

// ReadAhead lets the kernel read a range while the caller reads another one. ReadFull then returns what it has read, or its error.
func (x Exclusive) ReadAhead(offset, length int64) {
	_ = unix.Fadvise(int(x.Fd()), offset, length, unix.FADV_WILLNEED) // without it, reads take longer
}
