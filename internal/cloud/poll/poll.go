// Package poll waits for what a cloud has been told to do, for all calls at once.
//
// A cloud answers a write at once and needs seconds to carry it out. If every call looked for itself,
// a hundred of them would spend the API budget on the same question. So one Poller per cloud serves
// all that wait: the first look at an operation comes when one of its kind is usually done, which is
// learnt from what was seen; looks that are due near each other become one list call, and a list
// call answers everybody it can. Each later look follows after a tenth of the operation's age, so
// nobody waits much longer than the operation itself took. An operation that has taken twice its
// usual time is looked up by itself, because a list cannot show a failure.
//
// A Shared does the same for calls that must know something now: all that ask within one tick are
// answered by one read.
//
// Nothing here is a cache: every answer comes from a look that began after the question.
package poll

import (
	"context"
	"time"
)

// Kind is a kind of operation, such as "attach": operations of one kind take about the same time.
// It becomes a label of metrics, so there are few of them.
type Kind string

// Source is where the state of things can be looked up.
type Source[K comparable, S any] struct {
	// One looks at one thing.
	One func(ctx context.Context, key K) (S, error)
	// Many looks at several things with one request; the keys are sorted in no way. A key that its
	// answer lacks is looked up with One in the same turn. Nil where the cloud has no such request.
	//
	// If it fails with a kind that a later look cannot mend (fault.Denied, say), each key is looked
	// up with One.
	Many func(ctx context.Context, keys []K) (map[K]S, error)
}

// Config is what a Poller needs.
type Config[K comparable, S any] struct {
	Source[K, S]
	// Usual is when to take the first look at an operation of each kind, until it is learnt. A
	// value that is too small costs a few looks, one that is too large makes the first calls late:
	// give the shortest time that is plausible. A kind without a value begins with 500 ms.
	Usual map[Kind]time.Duration
	// Metrics may be nil.
	Metrics *Metrics
}

// Operation is something that a cloud has begun and somebody waits for.
type Operation[K comparable] struct {
	// Key is what Source understands.
	Key K
	// Kind says how long it usually takes.
	Kind Kind
	// Began is when the cloud took it on. The zero time means that this is not known (an operation
	// found running, after a restart for example): the first look comes at once.
	Began time.Time
}

// Poller answers all that wait for operations of one cloud. It has no goroutine while nobody waits.
type Poller[K comparable, S any] struct{}

// New makes a Poller.
func New[K comparable, S any](cfg Config[K, S]) *Poller[K, S] { return &Poller[K, S]{} }

// Wait returns the first state for which done reports true, or the error of done.
//
// A look that fails because the cloud is not available (fault.Unavailable, fault.Busy, an error
// without a kind) is a delay. One that fails otherwise ends the wait with its error. A context that
// ends stops this wait and nothing else; the error then wraps the context's, and the one of the last
// look if that failed. done is called without locks, never twice at a time.
func (p *Poller[K, S]) Wait(ctx context.Context, op Operation[K], done func(S) (bool, error)) (S, error) {
	var s S
	return s, nil
}

// Usual returns when the first look at an operation of this kind is taken now.
func (p *Poller[K, S]) Usual(kind Kind) time.Duration { return 0 }

// Close ends every wait with fault.Unavailable and returns when no look is under way any more.
func (p *Poller[K, S]) Close() {}
