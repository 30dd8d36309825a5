package yandex

import (
	"sync"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
)

// clock tells at the earliest when something was by this program's clock that has a time by the cloud's. The two may
// differ by anything. An operation that the cloud took on after it was sent shows how far the cloud's is ahead at most.
type clock struct {
	mu sync.Mutex
	// started is the moment that all others are counted from, so that a clock that is set does no harm.
	started time.Time
	// ahead is how far at most, seen in the present period; before is that of the period before. Clocks drift.
	ahead, before time.Duration
	seen, had     bool
	period        time.Time
}

const (
	clockPeriod = 5 * time.Minute
	// clockMargin is for what clocks drift in two periods, and for servers that do not agree.
	clockMargin = 200 * time.Millisecond
)

// saw takes in an operation that was sent at a moment, and that no other request can have begun.
func (c *clock) saw(sent time.Time, op *operation.Operation) {
	if op.GetCreatedAt() == nil {
		return
	}
	latest := op.GetCreatedAt().AsTime()
	if op.GetCreatedAt().GetNanos() == 0 {
		latest = latest.Add(time.Second) // it is cut to whole seconds
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started.IsZero() {
		c.started, c.period = sent, sent
	}
	if since := sent.Sub(c.period); since >= clockPeriod {
		c.had, c.before = c.seen && since < 2*clockPeriod, c.ahead
		c.seen, c.period = false, sent
	}
	if ahead := latest.Sub(c.wall(sent)); !c.seen || ahead < c.ahead {
		c.seen, c.ahead = true, ahead
	}
}

// wall is a moment as this program's clock showed it if it had not been set since the start.
func (c *clock) wall(at time.Time) time.Time { return c.started.Round(0).Add(at.Sub(c.started)) }

// oneCall is how far before a request its operation may seem to begin: the cloud counts whole seconds.
const oneCall = time.Second + 500*time.Millisecond

// moment is when a disk was made, at the earliest, that this program asked for at a moment; zero: it did not. A create
// is answered with the operation that another one with the same key has begun, if there is one, so that moment
// counts only if the disk's own time fits it.
func (c *clock) moment(made, asked time.Time) time.Time {
	at := c.here(made)
	if before := asked.Sub(at); !at.IsZero() && !asked.IsZero() && before > 0 && before <= oneCall {
		return asked
	}
	return at
}

// here is the earliest moment by this program's clock that a time by the cloud's can stand for; zero: that is not known.
func (c *clock) here(at time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen || at.IsZero() {
		return time.Time{}
	}
	ahead := c.ahead
	if c.had {
		ahead = min(ahead, c.before)
	}
	return c.started.Add(at.Add(-ahead - clockMargin).Sub(c.started.Round(0)))
}
