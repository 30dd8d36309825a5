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
	"time"
)

// Config is what a Queue needs. The zero value works.
type Config struct {
	// Capacity is how many changes may be under way over all keys, or 0 for any number.
	Capacity int
	// Watch bounds how long a key is held after the context of its change has ended. Zero means
	// 10 minutes.
	Watch time.Duration
	// Busy says how to wait while the cloud refuses a change because of somebody else's. The zero
	// value means DefaultBackoff.
	Busy Backoff
	// Metrics may be nil.
	Metrics *Metrics
}

// Backoff is a row of growing pauses.
type Backoff struct {
	// First is the first pause; each later one is half as long again, up to Most. A third of each
	// pause is left to chance, so that two controllers do not meet again.
	First, Most time.Duration
}

// DefaultBackoff suits operations of a few seconds.
var DefaultBackoff = Backoff{First: 500 * time.Millisecond, Most: 3 * time.Second}

// Queue holds the turns. It has no goroutine but for watchers.
type Queue struct{}

// New makes a Queue.
func New(cfg Config) *Queue { return &Queue{} }

// A Change is one write and the wait for what it began.
type Change struct {
	// Key is the machine. Changes without a key only count towards the capacity.
	Key string
	// Send sends the write. While it answers fault.Busy it is sent again after a pause; a refusal
	// proves that nothing was changed. Every other error ends the change.
	Send func(ctx context.Context) error
	// Wait returns when the cloud's operation has ended, whatever its outcome, or when ctx has. It
	// is not called if Send failed. If ctx ended it is called a second time, with a context of the
	// queue. Nil when the write is done with its answer.
	Wait func(ctx context.Context) error
}

// Do waits for the change's turn, sends it and waits for its end. The error is the one of Send or
// Wait, or fault.Unavailable with the context's error if the turn did not come: nothing was sent then.
func (q *Queue) Do(ctx context.Context, c Change) error { return nil }

// Acquire waits for the turn of the key; "" waits for capacity only. The error is fault.Unavailable
// and wraps the context's. The Slot must be released.
func (q *Queue) Acquire(ctx context.Context, key string) (*Slot, error) { return &Slot{}, nil }

// Close ends every wait with fault.Unavailable, stops the watchers and returns when they have ended.
func (q *Queue) Close() {}

// Slot is a turn.
type Slot struct{}

// Send calls send until it answers something else than fault.Busy, with pauses. Capacity is given
// to others during a pause; the key is not, for they would be refused too. If ctx ends the error is
// the last refusal and wraps the context's.
func (s *Slot) Send(ctx context.Context, send func(context.Context) error) error { return nil }

// Release ends the turn. A second call does nothing.
func (s *Slot) Release() {}

// ReleaseAfter ends the turn when wait returns, and returns at once. The context of wait has the
// values of ctx, but not its end; it ends after Config.Watch or with Close.
func (s *Slot) ReleaseAfter(ctx context.Context, wait func(context.Context) error) {}
