package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// untilFree is how a lock is tried that another process holds.
var untilFree = wait.Backoff{First: time.Millisecond, Max: 20 * time.Millisecond}

// changeLock is flock(2) on a file, which orders the changes of a pool between processes and within one.
type changeLock struct {
	lockPath string
	// lockSem admits one goroutine of this process at a time to the lock file. It is a channel, not a mutex,
	// so that waiting for it ends with the context.
	lockSem chan struct{}
}

func newChangeLock(path string) changeLock { return changeLock{path, make(chan struct{}, 1)} }

// lock acquires the pool's lock and returns the function that releases it. The kernel releases it when the
// process dies. flock(2) cannot wait until a context ends, so lock polls.
func (p changeLock) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case p.lockSem <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f, err := p.lockFile(ctx)
	if err != nil {
		<-p.lockSem
		return nil, err
	}
	return func() {
		_ = f.Close()
		<-p.lockSem
	}, nil
}

func (p changeLock) lockFile(ctx context.Context) (*os.File, error) {
	var f *os.File
	held := func(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) }
	err := untilFree.Retry(ctx, held, func() (err error) {
		f, err = p.tryLock()
		return err
	})
	switch {
	case held(err):
		return nil, cmp.Or(ctx.Err(), context.DeadlineExceeded)
	case err != nil:
		return nil, fmt.Errorf("lock pool by %s: %w", p.lockPath, kindOf(err))
	}
	return f, nil
}

// tryLock returns EWOULDBLOCK when another process holds the lock, or the file was replaced meanwhile.
func (p changeLock) tryLock() (*os.File, error) {
	name := p.lockPath
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, filePerm)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
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

// enter acquires the lock and checks that the folder still holds the pool that was opened. Without this
// check the empty mount point of an unmounted disk would look like a pool without volumes.
func (p *Pool) enter(ctx context.Context) (unlock func(), err error) {
	// Without this check the open of the lock file would create it in the empty mount point.
	if _, err := os.Lstat(p.path(metaFile)); err != nil {
		return nil, fmt.Errorf("pool %s is gone; is its disk mounted? %w: %w", p.dir, fault.PoolUnusable, err)
	}
	unlock, err = p.lock(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.checkIdentity(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// Exclusively runs f under the pool's lock, which excludes changes by this and other processes.
func (p *Pool) Exclusively(ctx context.Context, f func() error) error {
	unlock, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// flock takes a lock on an open file without waiting.
func flock(f *os.File, how int) error {
	return retryEINTR(func() error { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) })
}

func retryEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
