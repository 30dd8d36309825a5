// Package poll waits for what a cloud has been told to do, for all calls at once.
//
// A cloud answers a write at once and needs seconds to carry it out. If every call looked for itself,
// a hundred of them would spend the API budget on the same question. So one Poller per cloud serves
// all that wait: the first look at an operation comes when one of its kind is usually done, which is
// learnt from what was seen; looks that are due near each other become one list call, and a list
// call answers everybody it can. Each later look follows after a small part of the operation's age,
// so nobody waits much longer than the operation itself took. An operation that has taken twice its
// usual time is looked up by itself, because a list cannot show a failure.
//
// A Shared does the same for calls that must know something now: all that ask within one tick are
// answered by one read.
//
// Nothing here is a cache: every answer comes from a look that began after the question.
package poll

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Kind is a kind of operation, such as "attach": operations of one kind take about the same time.
// It becomes a label of metrics, so there are few of them.
type Kind string

// Config is what a Poller needs.
type Config[K comparable, S any] struct {
	Source[K, S]
	// Usual is when to take the first look at an operation of each kind, until it is learnt. A
	// value that is too small costs a few looks, one that is too large makes the first calls late:
	// give the shortest time that is plausible. A kind without a value begins with 400 ms.
	Usual map[Kind]time.Duration
	// Metrics may be nil.
	Metrics *Metrics
	// Rand returns numbers from 0 up to 1, for jitter. Nil means math/rand/v2.
	Rand func() float64
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
type Poller[K comparable, S any] struct {
	cfg    Config[K, S]
	closed context.Context
	close  context.CancelFunc
	looks  sync.WaitGroup

	mu      sync.Mutex
	usual   map[Kind]*usual
	waiters []*waiter[K, S] // in the order in which they came
	timer   *time.Timer
	// planned is when the timer fires, or zero; latest is when the first of the waiters has to be
	// looked at, the moment up to which a turn may be put off for others.
	planned, latest time.Time
}

// New makes a Poller.
func New[K comparable, S any](cfg Config[K, S]) *Poller[K, S] {
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	p := &Poller[K, S]{cfg: cfg, usual: map[Kind]*usual{}}
	p.closed, p.close = context.WithCancel(context.Background())
	return p
}

// Wait returns the first state for which done reports true, or the error of done.
//
// A look that fails because the cloud is not available (fault.Unavailable, fault.Busy, an error
// without a kind) is a delay. One that fails otherwise ends the wait with its error. A context that
// ends stops this wait and nothing else; the error then wraps the context's, and the one of the last
// look if that failed. done runs in the goroutine that called Wait.
func (p *Poller[K, S]) Wait(ctx context.Context, op Operation[K], done func(S) (bool, error)) (S, error) {
	w := p.enter(ctx, op)
	defer p.leave(w)
	var none S
	for {
		select {
		case found := <-w.answers:
			if found.err != nil && !passing(found.err) {
				return none, found.err
			}
			var over bool
			var err error
			if found.err == nil {
				over, err = done(found.state)
			}
			if over || err != nil {
				p.ended(w, err == nil)
				return found.state, err
			}
			p.again(w, found.err)
		case <-ctx.Done():
			return none, w.unanswered(ctx.Err())
		case <-p.closed.Done():
			return none, w.unanswered(fault.Unavailable)
		}
	}
}

// unanswered is the error of a wait that ended before the operation did.
func (w *waiter[K, S]) unanswered(why error) error {
	if w.failed != nil {
		return fmt.Errorf("wait for %s %v: %w: the last look failed: %w", w.op.Kind, w.op.Key, why, w.failed)
	}
	return fmt.Errorf("wait for %s %v: %w", w.op.Kind, w.op.Key, why)
}

// Usual returns at which age an operation of this kind gets its first look now.
func (p *Poller[K, S]) Usual(kind Kind) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first(kind)
}

// Known reports whether something is known of how long operations of this kind take.
func (p *Poller[K, S]) Known(kind Kind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.usualOf(kind)
	return u.learnt || u.likely() > 0
}

// Tell takes in that an operation of this kind has taken at least so long, which somebody else has seen: before
// this process was started, say. It is a guess that counts until one of the kind was waited for here.
func (p *Poller[K, S]) Tell(kind Kind, least time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usualOf(kind).told = least
}

// first returns the age for the first look.
func (p *Poller[K, S]) first(kind Kind) time.Duration {
	u := p.usualOf(kind)
	if u.learnt {
		return u.at
	}
	return max(min(p.likely(kind), longestGuess), u.at)
}

// likely returns how long an operation of a kind may take that is not learnt. A kind of which nothing is known
// yet is taken to need nearly as long as the quickest of the others: that spares most of the looks until its
// own duration is known. 0: nothing is known.
func (p *Poller[K, S]) likely(kind Kind) time.Duration {
	if own := p.usualOf(kind).likely(); own > 0 {
		return own
	}
	var quickest time.Duration
	for _, other := range p.usual {
		took := other.likely()
		if other.learnt {
			took = other.at
		}
		if took > 0 && (quickest == 0 || took < quickest) {
			quickest = took
		}
	}
	return time.Duration(guessShare * float64(quickest))
}

func (p *Poller[K, S]) usualOf(kind Kind) *usual {
	u := p.usual[kind]
	if u == nil {
		u = newUsual(p.cfg.Usual[kind])
		p.usual[kind] = u
	}
	return u
}

// Close ends every wait with fault.Unavailable and returns when no look is under way any more.
func (p *Poller[K, S]) Close() {
	p.mu.Lock()
	p.close()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.looks.Wait()
}
