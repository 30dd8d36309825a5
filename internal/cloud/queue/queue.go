// Package queue lets the changes of one machine happen one after the other.
//
// Clouds run one change per machine at a time and refuse a second one. Refusals cost requests, come
// back in no order and can go on for long, so a change waits here until it is its turn: first come,
// first served for each key, different keys in parallel. A key is held until the cloud's operation
// has ended, not until its call has: when the call's context ends first, a watcher of the queue goes
// on waiting and holds the key, for a bounded time. A change that waits and has not been sent is
// dropped when its context ends.
//
// A queue of one process saves requests and carries no correctness. Others change the same machine
// too; their "busy" is a delay (Slot.Send), and the queue may have a capacity over all keys for
// clouds that bound the number of running operations.
package queue

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const defaultWatch = 10 * time.Minute

// Config is what a Queue needs. The zero value works.
type Config struct {
	// Capacity is how many changes may be under way over all keys, or 0 for any number.
	Capacity int
	// Urgency says how urgent a change with this context is, the smallest number first, where the capacity is what
	// is waited for. Whoever has waited for long comes first all the same. Nil: the oldest comes first.
	Urgency func(ctx context.Context) int
	// Watch bounds how long a key is held after the context of its change has ended. Zero means
	// 10 minutes.
	Watch time.Duration
	// Busy says how to wait while the cloud refuses a change because of somebody else's. The zero
	// value means DefaultBackoff.
	Busy Backoff
	// Metrics may be nil.
	Metrics *Metrics
	// Rand returns numbers from 0 up to 1, for jitter. Nil means math/rand/v2.
	Rand func() float64
}

// Queue holds the turns. It has no goroutine but for watchers.
type Queue struct {
	cfg      Config
	closed   context.Context
	close    context.CancelFunc
	watchers sync.WaitGroup

	mu sync.Mutex
	// waiting are the turns that have not come, in the order in which they were asked for.
	waiting []*Slot
	held    map[string]struct{}
	running int // slots that count towards the capacity
}

// New makes a Queue.
func New(cfg Config) *Queue {
	if cfg.Watch <= 0 {
		cfg.Watch = defaultWatch
	}
	if cfg.Busy == (Backoff{}) {
		cfg.Busy = DefaultBackoff
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	q := &Queue{cfg: cfg, held: map[string]struct{}{}}
	q.closed, q.close = context.WithCancel(context.Background())
	return q
}

// A Change is one write and the wait for what it began.
type Change struct {
	// Key is the machine. Changes without a key only count towards the capacity.
	Key string
	// Send sends the write. While it answers fault.Busy it is sent again after a pause; a refusal
	// proves that nothing was changed. Every other error ends the change.
	Send func(ctx context.Context) error
	// Wait returns when the cloud's operation has ended, whatever its outcome, or when ctx has. It
	// is not called if Send failed. If ctx ended it is called a second time, by a watcher and with a
	// context of the queue, while the caller of Do goes on: what it writes belongs to it alone. Nil
	// when the write is done with its answer.
	Wait func(ctx context.Context) error
}

// Do waits for the change's turn, sends it and waits for its end. The error is the one of Send or
// Wait, or fault.Unavailable with the context's error if the turn did not come: nothing was sent then.
func (q *Queue) Do(ctx context.Context, c Change) error {
	slot, err := q.Acquire(ctx, c.Key)
	if err != nil {
		return err
	}
	defer slot.Release()
	if err := slot.Send(ctx, c.Send); err != nil || c.Wait == nil {
		return err
	}
	err = c.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		slot.ReleaseAfter(ctx, c.Wait)
	}
	return err
}

// Acquire waits for the turn of the key; "" waits for capacity only. The error is fault.Unavailable
// and wraps the context's. The Slot must be released.
func (q *Queue) Acquire(ctx context.Context, key string) (*Slot, error) {
	s := &Slot{q: q, key: key, turn: make(chan struct{}), since: time.Now()}
	if q.cfg.Urgency != nil {
		s.urgency = q.cfg.Urgency(ctx)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends every wait with fault.Unavailable, stops the watchers and returns when they have ended.
func (q *Queue) Close() {
	q.mu.Lock()
	q.close()
	q.mu.Unlock()
	q.watchers.Wait()
}

// starved is how long a change waits until it counts as the most urgent.
const starved = 2 * time.Minute

// advance gives turns to those that wait.
func (q *Queue) advance() {
	for q.cfg.Capacity == 0 || q.running < q.cfg.Capacity {
		at := q.next()
		if at < 0 {
			return
		}
		s := q.waiting[at]
		q.waiting = slices.Delete(q.waiting, at, at+1)
		q.running++
		if s.key != "" {
			q.held[s.key] = struct{}{}
		}
		s.state = running
		q.cfg.Metrics.moved(-1, +1)
		close(s.turn)
	}
}

// next chooses the most urgent of those that wait, the oldest of several, passing over those whose key is held or
// that somebody else waited for before.
func (q *Queue) next() int {
	best, found := -1, 0
	now := time.Now()
	before := map[string]struct{}{}
	for i, s := range q.waiting {
		_, behind := before[s.key]
		if s.key != "" {
			before[s.key] = struct{}{}
		}
		if !q.free(s) || behind && s.key != "" && !s.keeps {
			continue
		}
		urgency := s.urgency
		if now.Sub(s.since) >= starved {
			urgency = math.MinInt
		}
		if best < 0 || urgency < found {
			best, found = i, urgency
		}
		if q.cfg.Urgency == nil {
			break
		}
	}
	return best
}

// free reports whether the slot's key can be taken by it.
func (q *Queue) free(s *Slot) bool {
	_, held := q.held[s.key]
	return s.key == "" || s.keeps || !held
}

// ahead counts those that wait for the same key and came before, and those that hold it.
func (q *Queue) ahead(s *Slot) (n int) {
	for _, other := range q.waiting {
		if other == s {
			break
		}
		if other.key == s.key {
			n++
		}
	}
	if _, held := q.held[s.key]; held && !s.keeps {
		n++
	}
	return n
}

func unavailable(key string, ahead int, why error) error {
	return fmt.Errorf("change of %q behind %d others: nothing was sent: %w: %w", key, ahead, fault.Unavailable, why)
}
