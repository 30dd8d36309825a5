package wait

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// ErrNoAnswer is the error of a call that has not returned in time and may never return.
var ErrNoAnswer = errors.New("no answer")

// Guard runs calls from which the kernel may never return: open(2) of a disk, or a read of a filesystem, waits uninterruptibly for
// I/O that hangs. The calls of one key run one after the other, so a disk that hangs blocks one thread, however many calls it gets,
// and its callers get ErrNoAnswer.
type Guard struct {
	mu   sync.Mutex
	keys map[string]*turn
}

type turn struct {
	busy  chan struct{} // holds one element while a call runs
	began time.Time     // when that call began, or the last one ended; guarded by Guard.mu
	users int           // calls that run or wait; guarded by Guard.mu
}

// Run runs do and waits for it until ctx ends or the time bound has passed.
func (g *Guard) Run(ctx context.Context, key string, bound time.Duration, do func(ctx context.Context) error) error {
	_, err := g.Open(ctx, key, bound, func(ctx context.Context) (*os.File, error) { return nil, do(ctx) })
	return err
}

// Open is Run for a call that opens a file. A call that takes longer than its bound has no caller any more: it must change nothing
// after ctx has ended, and the file that it returns is closed. While a call runs for longer than the bound, later calls fail at
// once.
func (g *Guard) Open(ctx context.Context, key string, bound time.Duration, do func(ctx context.Context) (*os.File, error)) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	t, err := g.acquire(ctx, key, bound)
	if err != nil {
		return nil, err
	}
	type result struct {
		file *os.File
		err  error
	}
	done, abandoned := make(chan result), make(chan struct{})
	go func() {
		defer g.release(key, t)
		f, err := do(ctx)
		select {
		case done <- result{f, err}:
		case <-abandoned:
			if f != nil {
				_ = f.Close()
			}
		}
	}()
	select {
	case r := <-done:
		return r.file, r.err
	case <-ctx.Done():
		close(abandoned)
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, ctx.Err())
	}
}

// acquire waits until the key is free.
func (g *Guard) acquire(ctx context.Context, key string, bound time.Duration) (*turn, error) {
	g.mu.Lock()
	if g.keys == nil {
		g.keys = map[string]*turn{}
	}
	t := g.keys[key]
	if t == nil {
		t = &turn{busy: make(chan struct{}, 1), began: time.Now()}
		g.keys[key] = t
	}
	t.users++
	ctx, cancel := context.WithDeadline(ctx, t.began.Add(bound))
	defer cancel()
	g.mu.Unlock()
	select {
	case t.busy <- struct{}{}:
		g.mu.Lock()
		defer g.mu.Unlock()
		t.began = time.Now()
		return t, nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		g.leave(key, t)
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, ctx.Err())
	}
}

// release lets the next call run.
func (g *Guard) release(key string, t *turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.began = time.Now()
	<-t.busy
	g.leave(key, t)
}

// leave removes a key without users. The caller holds mu.
func (g *Guard) leave(key string, t *turn) {
	if t.users--; t.users == 0 {
		delete(g.keys, key)
	}
}
