package pool

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ErrNotHere comes with fault.PoolUnusable: the node does not have the pool now, because no filesystem is mounted at its folder or
// its volume group has no devices file. Nodes have the same configuration and different disks.
var ErrNotHere = errors.New("the node does not have this pool now")

// KindOf adds its kind to an error of the filesystem. It returns an error that has a kind, or is the context's, unchanged.
func KindOf(err error) error {
	kind := error(fault.Unavailable)
	switch {
	case err == nil, fault.Of(err) != fault.None,
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		kind = fault.PoolFull
	case errors.Is(err, unix.EFBIG):
		kind = fault.OutOfRange
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EOPNOTSUPP):
		kind = fault.PoolUnusable
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// Flock takes a lock on an open file without waiting.
func Flock(f *os.File, how int) error {
	return RetryEINTR(func() error { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) })
}

// RetryEINTR repeats a system call that a signal has interrupted.
func RetryEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
