package ops

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// gather is how long a read waits for others: short compared with a request.
const gather = 10 * time.Millisecond

// Reads combines concurrent reads into one request, which is sent after the last of them was called.
type Reads[K comparable, V any] struct {
	r    *Runner
	one  func(ctx context.Context, key K) (V, error)
	many func(ctx context.Context) (map[K]V, error)

	mu   sync.Mutex
	next *batch[K, V] // the one that gathers questions
}

// batch is one request for several reads.
type batch[K comparable, V any] struct {
	ctx  context.Context // has the values of the first that asked
	keys map[K]*answer[V]
}

// answer is that of one read, when done is closed.
type answer[V any] struct {
	done chan struct{}
	v    V
	err  error
}

// NewReads returns Reads. one reads one object. many reads all objects with one request, or returns nil if one request cannot show
// all; it may be nil. Objects that are missing in its result are read by one.
func NewReads[K comparable, V any](r *Runner, one func(context.Context, K) (V, error), many func(context.Context) (map[K]V, error)) *Reads[K, V] {
	return &Reads[K, V]{r: r, one: one, many: many}
}

// Get returns the state of an object, read after the call. The end of ctx ends this call only.
func (s *Reads[K, V]) Get(ctx context.Context, key K) (V, error) {
	var none V
	a, err := s.join(ctx, key)
	if err != nil {
		return none, err
	}
	select {
	case <-a.done:
		return a.v, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("read %v: %w", key, ctx.Err())
	}
}

func (s *Reads[K, V]) join(ctx context.Context, key K) (*answer[V], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		b := &batch[K, V]{ctx: context.WithoutCancel(ctx), keys: map[K]*answer[V]{}}
		if !s.r.spawn(func() { s.read(b) }) {
			return nil, fmt.Errorf("read %v: %w: the program ends", key, fault.Unavailable)
		}
		s.next = b
	}
	if s.next.keys[key] == nil {
		s.next.keys[key] = &answer[V]{done: make(chan struct{})}
	}
	return s.next.keys[key], nil
}

func (s *Reads[K, V]) read(b *batch[K, V]) {
	_ = wait.Sleep(s.r.life, gather)
	s.mu.Lock()
	s.next = nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(b.ctx, s.r.cfg.Timeout) // as long as a change: one may wait for the API's budget here
	defer cancel()
	defer context.AfterFunc(s.r.life, cancel)()
	var all map[K]V
	if len(b.keys) > 1 && s.many != nil {
		_ = Guard(func() (err error) { // where it fails, each is asked for alone
			all, err = s.many(ctx)
			return err
		})
	}
	var group sync.WaitGroup
	for key, a := range b.keys {
		group.Go(func() {
			defer close(a.done) // another read may hang
			known := false
			if a.v, known = all[key]; known {
				return
			}
			a.err = Guard(func() (err error) {
				a.v, err = s.one(ctx, key)
				return err
			})
		})
	}
	group.Wait()
}
