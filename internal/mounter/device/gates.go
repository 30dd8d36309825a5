package device

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// openBound is how long opening a device may take: the kernel does it at once unless I/O of the disk hangs.
	openBound = 10 * time.Second
	// flushBound is how long writing a device's cached data may take.
	flushBound = 2 * time.Minute
)

// gates run the steps that the kernel may never return from: open(2) of a disk waits, uninterruptibly, for I/O that
// hangs. Each device has a gate that one step at a time passes, so a disk that hangs costs one thread, however often
// it is asked for, and its callers get an error.
type gates struct {
	mu   sync.Mutex
	gate map[string]*gate
}

type gate struct {
	busy  chan struct{} // holds one element while a step runs
	began time.Time     // when that step could begin; guarded by gates.mu
}

// step is what a gate runs. A step that takes longer than its bound has lost its caller: it must change nothing after
// ctx has ended, and the file it returns is closed.
type step func(ctx context.Context) (*os.File, error)

// run runs a step on a device and waits for it until ctx ends or the bound has passed. While a step that exceeded
// openBound still runs, every other one is refused at once.
func (g *gates) run(ctx context.Context, name string, bound time.Duration, do step) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	own, err := g.acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	type result struct {
		file *os.File
		err  error
	}
	done, abandoned := make(chan result), make(chan struct{})
	go func() {
		defer g.release(own)
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
		return nil, errHangs(name, ctx.Err())
	}
}

// acquire waits for a device's gate.
func (g *gates) acquire(ctx context.Context, name string) (*gate, error) {
	g.mu.Lock()
	if g.gate == nil {
		g.gate = map[string]*gate{}
	}
	own := g.gate[name]
	if own == nil {
		own = &gate{busy: make(chan struct{}, 1)}
		g.gate[name] = own
	}
	select {
	case own.busy <- struct{}{}:
		own.began = time.Now()
		g.mu.Unlock()
		return own, nil
	default:
	}
	ctx, cancel := context.WithDeadline(ctx, own.began.Add(openBound))
	defer cancel()
	g.mu.Unlock()
	select {
	case own.busy <- struct{}{}:
		return own, nil
	case <-ctx.Done():
		return nil, errHangs(name, ctx.Err())
	}
}

// release lets the next step pass, which begins now.
func (g *gates) release(own *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	own.began = time.Now()
	<-own.busy
}

func errHangs(name string, cause error) error {
	return fmt.Errorf("device %s does not answer; look for stuck I/O in the kernel's log: %w: %w", name, fault.Unavailable, cause)
}
