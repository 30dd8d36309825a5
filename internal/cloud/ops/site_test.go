package ops_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// site is a cloud with one object whose value changes by operations that take a while. One runs at a time.
type site struct {
	mu      sync.Mutex
	value   int
	running map[string]*job
	numbers int
	// takes is how long an operation runs, read how long a read takes, answer how long a write's answer takes.
	takes, read, answer time.Duration
	fails, hidden, says bool // says: how long an operation took
	sent, reads         int
}

type job struct {
	object string
	ends   time.Time
	to     int
	failed bool
}

// refusal is what the cloud answers instead of doing something.
type refusal struct{}

func (refusal) Error() string { return "the cloud says no" }
func (refusal) Refused() bool { return true }

func newSite(takes time.Duration) *site { return &site{takes: takes, running: map[string]*job{}} }

func (s *site) now() (busy bool) {
	for _, j := range s.running {
		if !time.Now().Before(j.ends) && j.to != 0 && !j.failed {
			s.value, j.to = j.to, 0
		}
		busy = busy || time.Now().Before(j.ends)
	}
	return busy
}

func (s *site) submit(ctx context.Context, w *ops.Write, to int) (int, string, error) {
	if ctx.Err() != nil {
		return 0, "", fmt.Errorf("%w: %w", fault.Unavailable, ctx.Err())
	}
	answer, err := w.MarkSent()
	if err != nil {
		return 0, "", err
	}
	s.mu.Lock()
	s.sent++
	busy := s.now()
	s.numbers++
	id := fmt.Sprint("op-", s.numbers)
	if !busy && s.value != to {
		s.running[id] = &job{object: "it", ends: time.Now().Add(s.takes), to: to, failed: s.fails}
	}
	same := s.value == to
	s.mu.Unlock()
	select {
	case <-time.After(s.answer):
	case <-answer.Done():
		return 0, "", fmt.Errorf("%w: %w", fault.Uncertain, context.Cause(answer))
	}
	switch {
	case busy:
		return 0, "", fmt.Errorf("%w: %w", fault.Busy, refusal{})
	case same:
		return 0, "", fmt.Errorf("%w: %w", fault.InvalidArgument, refusal{})
	}
	return to, id, nil
}

func (s *site) state(context.Context) (int, error) {
	<-time.After(s.read)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now()
	return s.value, nil
}

func (s *site) Running(_ context.Context, object string) (all []ops.Operation, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, j := range s.running {
		if time.Now().Before(j.ends) {
			all = append(all, ops.Operation{Object: object, ID: id})
		}
	}
	return all, nil
}

func (s *site) Outcome(ctx context.Context, op ops.Operation) (ops.Outcome, error) {
	select {
	case <-time.After(s.read):
	case <-ctx.Done():
		return ops.Outcome{}, fmt.Errorf("%w: %w", fault.Unavailable, ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	s.now()
	j := s.running[op.ID]
	switch {
	case s.hidden:
		return ops.Outcome{Err: fmt.Errorf("%w: not for you", fault.Denied)}, nil
	case j == nil || time.Now().Before(j.ends):
		return ops.Outcome{}, nil
	case j.failed:
		return ops.Outcome{Done: true, Err: errors.New("it failed")}, nil
	case s.says:
		return ops.Outcome{Done: true, Took: s.takes}, nil
	}
	return ops.Outcome{Done: true}, nil
}

func (s *site) count() (sent, reads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent, s.reads
}

// succeeds fails the test unless the change is made.
func succeeds(t *testing.T, r *ops.Runner, op ops.Op[int]) {
	t.Helper()
	if _, err := ops.Run(t.Context(), r, op); err != nil {
		t.Error(err)
	}
}

// set is the Op that gives the object a value.
func (s *site) set(to int) ops.Op[int] {
	return ops.Op[int]{
		Name: fmt.Sprint("set it to ", to), Kind: "set", Object: "it", Machine: "machine", Priority: budget.Attach,
		Submit: func(ctx context.Context, w *ops.Write) (int, string, error) { return s.submit(ctx, w, to) },
		State:  s.state,
		Decide: func(value int, settled bool, refusal error) error {
			switch {
			case !settled:
				return fmt.Errorf("%w: %w", fault.Busy, refusal)
			case value == to:
				return nil
			}
			return fmt.Errorf("%w: it is %d: %w", fault.Busy, value, refusal)
		},
	}
}

// simulated plays something with a Runner, in simulated time.
func simulated(t *testing.T, cfg ops.Config, play func(t *testing.T, r *ops.Runner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := ops.New(t.Context(), cfg)
		play(t, r)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
