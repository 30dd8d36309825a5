package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Backoff is a row of growing pauses.
type Backoff struct {
	// First is the first pause; each later one is half as long again, up to Most. A third of each
	// pause is left to chance, so that two controllers do not meet again.
	First, Most time.Duration
}

// DefaultBackoff suits operations of a few seconds.
var DefaultBackoff = Backoff{First: 500 * time.Millisecond, Most: 3 * time.Second}

// pause returns the pause after the n-th refusal, from 0. chance is a number from 0 up to 1.
func (b Backoff) pause(n int, chance float64) time.Duration {
	d := b.First
	for range n {
		if d >= b.Most {
			break
		}
		d += d / 2
	}
	d = min(d, b.Most)
	return d - time.Duration(chance*float64(d)/3)
}

// state is where a slot is in its life.
type state int

const (
	outside state = iota // not yet asked for, or released
	waiting
	running
)

// Slot is a turn.
type Slot struct {
	q       *Queue
	key     string
	urgency int
	since   time.Time

	// Guarded by q.mu.
	state state
	// keeps: it waits for capacity only and has its key already.
	keeps bool
	turn  chan struct{} // closed when the turn has come
	// watched: a watcher releases it. ended: it was released.
	watched, ended bool
}

// enter waits for the turn.
func (s *Slot) enter(ctx context.Context) error {
	q := s.q
	q.mu.Lock()
	if err := errors.Join(ctx.Err(), q.closed.Err()); err != nil {
		ahead := q.ahead(s)
		q.mu.Unlock()
		return unavailable(s.key, ahead, err)
	}
	s.state = waiting
	turn := s.turn
	q.waiting = append(q.waiting, s)
	q.cfg.Metrics.moved(+1, 0)
	q.advance()
	q.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	case <-q.closed.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	err := unavailable(s.key, q.ahead(s), errors.Join(ctx.Err(), q.closed.Err()))
	if s.state == waiting {
		q.waiting = slices.DeleteFunc(q.waiting, func(other *Slot) bool { return other == s })
		q.cfg.Metrics.moved(-1, 0)
	} else { // the turn came at the same moment
		q.running--
		q.cfg.Metrics.moved(0, -1)
		if !s.keeps {
			delete(q.held, s.key)
		}
	}
	s.state = outside
	q.advance()
	return err
}

// Send calls send until it answers something else than fault.Busy, with pauses. Capacity is given
// to others during a pause; the key is not, for they would be refused too. If ctx ends the error is
// the last refusal and wraps the context's.
func (s *Slot) Send(ctx context.Context, send func(context.Context) error) error {
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return unavailable(s.key, 0, ctx.Err())
		}
		err := send(ctx)
		if fault.Of(err) != fault.Busy {
			return err
		}
		s.q.cfg.Metrics.refused()
		if why := s.pause(ctx, s.q.cfg.Busy.pause(n, s.q.cfg.Rand())); why != nil {
			return fmt.Errorf("%w: sent %d times: %w", err, n+1, why)
		}
	}
}

// pause waits with the key and without capacity.
func (s *Slot) pause(ctx context.Context, d time.Duration) error {
	s.yield()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.enter(ctx)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.q.closed.Done():
		return s.q.closed.Err()
	}
}

// yield gives the capacity back and keeps the key.
func (s *Slot) yield() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.state, s.keeps, s.turn = outside, true, make(chan struct{})
	s.q.running--
	s.q.cfg.Metrics.moved(0, -1)
	s.q.advance()
}

// Release ends the turn. A second call does nothing.
func (s *Slot) Release() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.release()
}

func (s *Slot) release() {
	if s.watched || s.ended {
		return
	}
	s.ended = true
	if s.state == running {
		s.q.running--
		s.q.cfg.Metrics.moved(0, -1)
	}
	if s.key != "" {
		delete(s.q.held, s.key)
	}
	s.q.advance()
}

// ReleaseAfter ends the turn when wait returns, and returns at once. The context of wait has the
// values of ctx, but not its end; it ends after Config.Watch or with Close.
func (s *Slot) ReleaseAfter(ctx context.Context, wait func(context.Context) error) {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.watched || s.ended || q.closed.Err() != nil {
		s.release()
		return
	}
	s.watched = true
	watch, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.cfg.Watch)
	stop := context.AfterFunc(q.closed, cancel)
	q.watchers.Go(func() {
		defer stop()
		defer cancel()
		_ = wait(watch) // whatever came out of it, the machine is free for the next change
		q.mu.Lock()
		defer q.mu.Unlock()
		s.watched = false
		s.release()
	})
}
