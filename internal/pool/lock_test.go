package pool

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	lock, other := NewLock(dir), NewLock(dir)
	for name, holder := range map[string]Lock{"held by this process": lock, "held as if by another process": other} {
		t.Run(name, func(t *testing.T) {
			unlock, err := holder.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if _, err := lock.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("acquire = %v, want %v", err, context.DeadlineExceeded)
			}
		})
	}
}

func TestKindOfAFilesystemError(t *testing.T) {
	for err, want := range map[error]fault.Kind{
		unix.ENOSPC: fault.Exhausted, unix.EDQUOT: fault.Exhausted, unix.EFBIG: fault.OutOfRange, unix.EROFS: fault.Precondition,
		unix.EIO: fault.Unavailable, unix.EOPNOTSUPP: fault.Precondition, fault.Busy: fault.Busy, context.Canceled: fault.None,
	} {
		if got := KindOf(err); fault.Of(got) != want || !errors.Is(got, err) {
			t.Errorf("kindOf(%v) = %v, want kind %q and the cause", err, got, want)
		}
	}
}
