package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The pauses between two looks at a lock that another process holds.
const (
	shortPause = time.Millisecond
	longPause  = 20 * time.Millisecond
)

// lock takes the pool's lock and returns what gives it back. The kernel gives it back too when the
// process dies. flock has no way to wait until a context ends, so a lock that is held is tried again.
func (p *Pool) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f, err := p.lockFile(ctx)
	if err != nil {
		<-p.turn
		return nil, err
	}
	return func() {
		_ = f.Close()
		<-p.turn
	}, nil
}

func (p *Pool) lockFile(ctx context.Context) (*os.File, error) {
	for pause := shortPause; ; pause = min(2*pause, longPause) {
		f, err := p.tryLock()
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock pool %s: %w", p.dir, kindOf(err))
		}
		if err := wait(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// tryLock answers EWOULDBLOCK when somebody else has the lock, or the file was replaced meanwhile.
func (p *Pool) tryLock() (*os.File, error) {
	name := p.path(lockFile)
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

// enter takes the lock and makes sure that the folder is still the pool that was opened. If its
// disk was unmounted, an empty folder would otherwise answer that no volume exists.
func (p *Pool) enter(ctx context.Context) (unlock func(), err error) {
	// Without this look, opening the lock would put a file into the bare folder.
	if _, err := os.Lstat(p.path(metaFile)); err != nil {
		return nil, fmt.Errorf("pool %s is gone; is its disk mounted? %w: %w", p.dir, fault.Precondition, err)
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

// Exclusively runs f while nobody else, in this process or another one, changes the pool.
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

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
