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
	ctx     context.Context // has the values of the first that asked
	keys    map[K]bool
	done    chan struct{}
	answers map[K]V
	errs    map[K]error
}

// NewReads returns Reads. one reads one object. many reads all objects with one request, or returns nil if one request cannot show
// all; it may be nil. Objects that are missing in its result are read by one.
func NewReads[K comparable, V any](r *Runner, one func(context.Context, K) (V, error), many func(context.Context) (map[K]V, error)) *Reads[K, V] {
	return &Reads[K, V]{r: r, one: one, many: many}
}

// Get returns the state of an object, read after the call. The end of ctx ends this call only.
func (s *Reads[K, V]) Get(ctx context.Context, key K) (V, error) {
	var none V
	b, err := s.join(ctx, key)
	if err != nil {
		return none, err
	}
	select {
	case <-b.done:
		return b.answers[key], b.errs[key]
	case <-ctx.Done():
		return none, fmt.Errorf("read %v: %w", key, ctx.Err())
	}
}

func (s *Reads[K, V]) join(ctx context.Context, key K) (*batch[K, V], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		b := &batch[K, V]{ctx: context.WithoutCancel(ctx), keys: map[K]bool{}, done: make(chan struct{})}
		if !s.r.spawn(func() { s.read(b) }) {
			return nil, fmt.Errorf("read %v: %w: the program ends", key, fault.Unavailable)
		}
		s.next = b
	}
	s.next.keys[key] = true
	return s.next, nil
}

func (s *Reads[K, V]) read(b *batch[K, V]) {
	defer close(b.done)
	_ = wait.Sleep(s.r.life, gather)
	s.mu.Lock()
	s.next = nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(b.ctx, s.r.cfg.Timeout) // as long as a change: one may wait for the API's budget here
	defer cancel()
	defer context.AfterFunc(s.r.life, cancel)()
	b.answers, b.errs = map[K]V{}, map[K]error{}
	var all map[K]V
	if len(b.keys) > 1 && s.many != nil {
		_ = Guard(func() (err error) { // where it fails, each is asked for alone
			all, err = s.many(ctx)
			return err
		})
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	for key := range b.keys {
		group.Go(func() {
			answer, known := all[key]
			var err error
			if !known {
				err = Guard(func() (err error) {
					answer, err = s.one(ctx, key)
					return err
				})
			}
			mu.Lock()
			defer mu.Unlock()
			b.answers[key], b.errs[key] = answer, err
		})
	}
	group.Wait()
}
