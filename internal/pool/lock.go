package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// untilFree repeats the attempt to get a lock that another process holds.
var untilFree = wait.Backoff{First: time.Millisecond, Max: 20 * time.Millisecond}

// Lock serializes the changes of a pool, between processes by flock(2) on a file, and within one.
type Lock struct {
	path string
	// admits one goroutine of this process at a time. It is a channel, so that waiting for it ends with the context.
	admits chan struct{}
}

// LockFile is the base name of the lock file.
const LockFile = "lock"

// NewLock returns the lock in this folder.
func NewLock(dir string) Lock {
	return Lock{filepath.Join(dir, LockFile), make(chan struct{}, 1)}
}

// Acquire returns the function that releases the lock. The kernel releases it when the
// process dies. flock(2) cannot wait until a context ends, so Acquire polls.
func (l Lock) Acquire(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case l.admits <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f, err := l.poll(ctx)
	if err != nil {
		<-l.admits
		return nil, err
	}
	return func() {
		_ = f.Close()
		<-l.admits
	}, nil
}

func (l Lock) poll(ctx context.Context) (*os.File, error) {
	var f *os.File
	held := func(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) }
	err := untilFree.Retry(ctx, held, func() (err error) {
		f, err = l.try()
		return err
	})
	switch {
	case held(err):
		return nil, cmp.Or(ctx.Err(), context.DeadlineExceeded)
	case err != nil:
		return nil, fmt.Errorf("lock pool by %s: %w", l.path, KindOf(err))
	}
	return f, nil
}

// try returns EWOULDBLOCK when another process holds the lock, or the file was replaced meanwhile.
func (l Lock) try() (*os.File, error) {
	name := l.path
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := Flock(f, unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	held, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		if named, err = os.Lstat(name); err == nil && !os.SameFile(held, named) {
			err = unix.EWOULDBLOCK
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
