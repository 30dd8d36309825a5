package poll

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	defaultTick = 10 * time.Millisecond
	// patience is how many ticks a question waits for the read under way before it gets its own.
	patience = 50
)

// SharedConfig is what a Shared needs.
type SharedConfig[K comparable, V any] struct {
	Source[K, V]
	// Tick is how long a question waits for others. Zero means 10 ms, which is short against what
	// a request takes.
	Tick time.Duration
	// Metrics may be nil.
	Metrics *Metrics
}

// Shared answers all that ask within one tick with one read. The read begins after the last of them
// asked, so nobody gets a state from before the question. Whoever asks while a read is under way
// gets the next one, which waits for it, but not for long.
type Shared[K comparable, V any] struct {
	cfg    SharedConfig[K, V]
	closed context.Context
	close  context.CancelFunc
	reads  sync.WaitGroup

	mu   sync.Mutex
	next *read[K, V] // the read that gathers questions, or nil
	busy int         // reads under way
}

// A read is one look for some questions.
type read[K comparable, V any] struct {
	look
	ctx   context.Context
	keys  []K
	asked map[K]struct{} // the keys
	timer *time.Timer
	begun bool
	// over is closed when answers are there.
	over    chan struct{}
	answers map[K]answer[V]
}

// NewShared makes a Shared.
func NewShared[K comparable, V any](cfg SharedConfig[K, V]) *Shared[K, V] {
	if cfg.Tick <= 0 {
		cfg.Tick = defaultTick
	}
	s := &Shared[K, V]{cfg: cfg}
	s.closed, s.close = context.WithCancel(context.Background())
	return s
}

// Get returns the present state of a thing. Errors of the read reach everybody it was made for: there
// is no retry here. A context that ends stops this call only; the read goes on for the others.
func (s *Shared[K, V]) Get(ctx context.Context, key K) (V, error) {
	r := s.join(ctx, key)
	select {
	case <-r.over:
		found := r.answers[key]
		return found.state, found.err
	case <-ctx.Done():
		s.leave(r)
		var none V
		return none, fmt.Errorf("read %v: %w", key, ctx.Err())
	case <-s.closed.Done():
		var none V
		return none, fmt.Errorf("read %v: %w: the program ends", key, fault.Unavailable)
	}
}

// join adds a question to the next read.
func (s *Shared[K, V]) join(ctx context.Context, key K) *read[K, V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.next
	if r == nil {
		r = &read[K, V]{asked: map[K]struct{}{}, over: make(chan struct{})}
		// The context has the values of whoever asked first, for traces, and not its end.
		r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
		wait := s.cfg.Tick
		if s.busy > 0 {
			wait *= patience
		}
		r.timer = time.AfterFunc(wait, func() { s.begin(r) })
		s.next = r
	}
	r.waiters++
	if _, twice := r.asked[key]; !twice {
		r.asked[key] = struct{}{}
		r.keys = append(r.keys, key)
	}
	return r
}

// leave takes a question back.
func (s *Shared[K, V]) leave(r *read[K, V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.left()
	if r.waiters == 0 && s.next == r {
		r.timer.Stop()
		s.next = nil
	}
}

// begin sends a read, once.
func (s *Shared[K, V]) begin(r *read[K, V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.begun || r.waiters == 0 || s.closed.Err() != nil {
		return
	}
	r.begun = true
	s.next = nil
	s.busy++
	stop := context.AfterFunc(s.closed, r.cancel)
	s.reads.Go(func() {
		defer stop()
		defer r.cancel()
		r.answers = s.cfg.look(r.ctx, r.keys, s.cfg.Metrics)
		close(r.over)
		s.finished()
	})
}

// finished lets the questions go on that came while a read was under way.
func (s *Shared[K, V]) finished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if s.next != nil {
		// Those that were answered just now often ask the next question at once: a tick for them.
		s.next.timer.Reset(s.cfg.Tick)
	}
}

// Close ends every Get with fault.Unavailable and returns when no read is under way any more.
func (s *Shared[K, V]) Close() {
	s.mu.Lock()
	s.close()
	if s.next != nil {
		s.next.timer.Stop()
	}
	s.mu.Unlock()
	s.reads.Wait()
}
