// Package remote holds what the backends have in common whose cloud is behind an API: changes that go on
// without their callers, the kinds of answers and of their absence, complete lists, and tags that are one
// word.
package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Metrics are those of the machinery that all clouds share. Each may be nil.
type Metrics struct {
	Poll   *poll.Metrics
	Queue  *queue.Metrics
	Budget *budget.Metrics
}

// AnswerTimeout bounds how long the answer to a sent request is waited for.
const AnswerTimeout = 60 * time.Second

// Work is what a backend has under way beyond its calls: requests whose callers have gone, and what it does
// in the background.
type Work struct {
	life    context.Context // ends with End
	end     context.CancelFunc
	running sync.WaitGroup

	mu  sync.Mutex
	air map[string]chan struct{} // by object: closed when its write was answered
}

// NewWork returns a Work that ends with ctx or End.
func NewWork(ctx context.Context) *Work {
	w := &Work{air: map[string]chan struct{}{}}
	w.life, w.end = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, w.end)
	context.AfterFunc(w.life, func() { stop() })
	return w
}

// Life is the context that lasts until the backend ends.
func (w *Work) Life() context.Context { return w.life }

// Go does something in the background. It ends with Life.
func (w *Work) Go(do func()) { w.running.Go(do) }

// Every does something now and then in the background, for the first time after a while, until Life ends.
func (w *Work) Every(pause time.Duration, do func()) {
	w.Go(func() {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-w.life.Done():
				return
			}
			do()
			timer.Reset(pause)
		}
	})
}

// End ends Life.
func (w *Work) End() { w.end() }

// Wait returns when nothing is under way any more, or with an error when ctx ends first.
func (w *Work) Wait(ctx context.Context) error {
	idle := make(chan struct{})
	go func() {
		w.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("requests to the cloud are still under way: %w", ctx.Err())
	}
}

// Write sends a change of an object. When ctx ends before the change was sent it never is; after that the
// call is answered with fault.Uncertain at once and the request goes on without it. A later write of the same
// object waits until the earlier one was answered, so the two cannot overtake one another.
//
// send sends through a Sender, or else calls Leave right before it sends and then goes on with that context.
func (w *Work) Write(ctx context.Context, object string, send func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	landed, err := w.takeOff(ctx, object)
	if err != nil {
		return fmt.Errorf("%w: an earlier change of it was not answered yet: %w", fault.Unavailable, err)
	}
	f, land := newFlight(w.life)
	answered := make(chan error, 1)
	w.running.Go(func() {
		defer land()
		defer landed()
		answered <- caught(func() error { return send(context.WithValue(ctx, flightKey{}, f)) })
	})
	select {
	case err = <-answered:
	case <-ctx.Done():
		if !f.drop() {
			return fmt.Errorf("%w: it was sent, and nobody waited for the answer: %w", fault.Uncertain, ctx.Err())
		}
		err = <-answered // at once: it is not sent any more
		if !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", fault.Unavailable, ctx.Err())
		}
	}
	return err
}

// caught is what do returns. Where it panics, as an SDK may that gets nonsense for an answer, the program goes on (C6)
// and the outcome of what was sent is not known.
func caught(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the answer could not be understood: %v", fault.Uncertain, p)
		}
	}()
	return do()
}

// Settled waits until no write of the object is unanswered.
func (w *Work) Settled(ctx context.Context, object string) error {
	landed, err := w.takeOff(ctx, object)
	if err != nil {
		return fmt.Errorf("%w: an earlier change of it was not answered yet: %w", fault.Unavailable, err)
	}
	landed()
	return nil
}

// takeOff waits until no write of the object is unanswered and claims the object for one.
func (w *Work) takeOff(ctx context.Context, object string) (landed func(), err error) {
	mine := make(chan struct{})
	for {
		w.mu.Lock()
		earlier, taken := w.air[object]
		if !taken {
			w.air[object] = mine
			w.mu.Unlock()
			return func() {
				w.mu.Lock()
				delete(w.air, object)
				w.mu.Unlock()
				close(mine)
			}, nil
		}
		w.mu.Unlock()
		select {
		case <-earlier:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// A flight is a write on its way. Exactly one side wins: either it is sent, or its caller has gone
// before that and it never is. One that was refused for want of budget was not carried out, and is on
// the ground again.
type flight struct {
	ctx context.Context // bounds the answer, not the caller's patience
	// limit ends ctx. It runs while an answer is waited for, and not while the budget is.
	limit *time.Timer
	state atomic.Int32
}

func newFlight(life context.Context) (f *flight, land func()) {
	ctx, cancel := context.WithCancelCause(life)
	f = &flight{ctx: ctx, limit: time.AfterFunc(AnswerTimeout, func() { cancel(errSilent) })}
	f.limit.Stop()
	return f, func() {
		f.limit.Stop()
		cancel(nil)
	}
}

// errSilent is a cloud that has not answered for AnswerTimeout.
var errSilent = fmt.Errorf("the cloud has not answered for %s: %w", AnswerTimeout, context.DeadlineExceeded)

type flightKey struct{}

const (
	onGround int32 = iota
	inAir
	dropped
)

// ErrLate is a write that was not sent because LeaveBy had passed.
var ErrLate = fmt.Errorf("%w: what it was decided by is too old by now", fault.Unavailable)

type leaveByKey struct{}

// LeaveBy makes a write with this context be sent until then or never: fault.Unavailable says that it was
// not. It is for a change that was decided by a state which somebody else may change meanwhile.
func LeaveBy(ctx context.Context, latest time.Time) context.Context {
	return context.WithValue(ctx, leaveByKey{}, latest)
}

// Leave is called when a request is about to be sent. For a write it returns the context that bounds its
// answer, and back, which is called when the cloud refused it for want of budget. After that it may be sent
// again, by the same rules. An error says that it must not be sent.
func Leave(ctx context.Context) (answer context.Context, back func(), err error) {
	f, isWrite := ctx.Value(flightKey{}).(*flight)
	if !isWrite {
		return ctx, func() {}, nil
	}
	if latest, has := ctx.Value(leaveByKey{}).(time.Time); has && time.Now().After(latest) {
		return nil, nil, ErrLate
	}
	if !f.leave() {
		return nil, nil, fmt.Errorf("%w: %w", fault.Unavailable, context.Cause(ctx))
	}
	return f.ctx, f.back, nil
}

func (f *flight) leave() bool {
	if !f.state.CompareAndSwap(onGround, inAir) && f.state.Load() != inAir {
		return false
	}
	f.limit.Reset(AnswerTimeout)
	return true
}

func (f *flight) back() {
	f.limit.Stop()
	f.state.CompareAndSwap(inAir, onGround)
}

func (f *flight) drop() bool { return f.state.CompareAndSwap(onGround, dropped) }
