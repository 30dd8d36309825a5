package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

const (
	// maxUnexplained is how many times a request is sent that is refused although the state allows it. The state may have changed
	// in between, or the reason may be something that the API does not show.
	maxUnexplained = 5
	// maxWaiting is the maximum number of waiting calls, for the memory limit in the manifests. Detaches, for which pods on other
	// nodes wait, may exceed it.
	maxWaiting, moreDetaches = 1000, 100
	// maxRepeats is the maximum number of calls of Repeat: with the usual pauses a few seconds.
	maxRepeats = 5
)

// Run runs a change and returns the object as it is known at the end.
//
// The error is fault.Uncertain if the request was sent and its outcome is unknown. If ctx ends before the request is sent, it is never
// sent, and the error is fault.Unavailable. If ctx ends later, the change continues without its caller and keeps its object and
// machine locked until it has ended; a call with the same Name waits for it and sends nothing.
func Run[S any](ctx context.Context, r *Runner, op Op[S]) (S, error) {
	var none S
	ctx, cancel := r.Bounded(ctx)
	defer cancel()
	leave, err := r.admit(op.Priority)
	if err != nil {
		return none, fmt.Errorf("%s: %w", op.Name, err)
	}
	defer leave()
	if f, ok := r.underWay(op.Object).(*inflight[S]); ok && f.op.Name == op.Name && f.write.detached() {
		select {
		case <-f.done:
			return f.answer, f.err
		case <-ctx.Done():
			return none, uncertain(op.Name, ctx.Err())
		}
	}
	release, behind, err := r.queue.acquire(ctx, op.Priority, op.Object, op.Machine)
	if err != nil {
		return none, fmt.Errorf("%s: %w: nothing was sent, it waited behind %d other changes: %w", op.Name, fault.Unavailable, behind, err)
	}
	f := newInflight(ctx, r, op)
	if !r.spawn(func() { f.run(release) }) {
		release()
		return none, fmt.Errorf("%s: %w: the program ends", op.Name, fault.Unavailable)
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		if f.write.leave(ctx.Err(), r.cfg.Timeout) {
			return none, uncertain(op.Name, ctx.Err())
		}
		<-f.done // at once: nothing is sent any more
	}
	if f.err != nil && ctx.Err() != nil {
		return none, fmt.Errorf("%w: %w", f.err, ctx.Err())
	}
	return f.answer, f.err
}

func uncertain(name string, why error) error {
	return fmt.Errorf("%s: %w: it was sent and goes on: %w", name, fault.Uncertain, why)
}

// Repeat repeats an idempotent function until it succeeds or fails with an error that a repeat cannot change. It is for background
// work, which no caller repeats.
func (r *Runner) Repeat(ctx context.Context, call func() error) error {
	for n := 0; ; n++ {
		err := call()
		switch fault.Of(err) {
		case fault.Unavailable, fault.Uncertain, fault.Busy:
		default:
			return err
		}
		if n+1 == maxRepeats || r.life.Err() != nil || wait.Sleep(ctx, r.cfg.Busy.Pause(n+1)) != nil {
			return err
		}
	}
}

// Settle waits until no operation of an object is running, and then reads it. If another controller has begun one by the end of the
// read, which may show what that will take back if it fails, Settle begins again.
func Settle[S any](ctx context.Context, r *Runner, object string, state func(ctx context.Context) (S, error)) (S, error) {
	var none S
	if f, ok := r.underWay(object).(interface{ ended() <-chan struct{} }); ok { // its request may not have been answered yet
		select {
		case <-f.ended():
		case <-ctx.Done():
			return none, fmt.Errorf("wait for what is under way with %s: %w: %w", object, fault.Unavailable, ctx.Err())
		}
	}
	for {
		if _, err := r.settle(ctx, object); err != nil {
			return none, err
		}
		s, err := state(ctx)
		if err != nil {
			return none, err
		}
		switch begun, err := r.settle(ctx, object); {
		case err != nil:
			return none, err
		case begun == 0:
			return s, nil
		}
	}
}

// inflight is a change that has left the queue. It lasts until its operation in the cloud ends, whatever its caller does.
type inflight[S any] struct {
	r     *Runner
	op    Op[S]
	write *Write

	// done is closed when answer and err are final.
	done   chan struct{}
	answer S
	err    error
}

func newInflight[S any](ctx context.Context, r *Runner, op Op[S]) *inflight[S] {
	f := &inflight[S]{r: r, op: op, done: make(chan struct{}), write: &Write{Priority: op.Priority, Key: op.Key, caller: ctx}}
	f.write.ctx, f.write.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return f
}

func (f *inflight[S]) ended() <-chan struct{} { return f.done }

// run runs the change in its own goroutine.
func (f *inflight[S]) run(release func()) {
	stop := context.AfterFunc(f.r.life, func() { f.write.cancel(context.Canceled) })
	f.r.begin(f.op.Object, f)
	end := f.r.cfg.Metrics.begins()
	defer func() {
		end()
		f.r.end(f.op.Object, f)
		stop()
		f.write.end()
		release()
		close(f.done)
	}()
	f.err = Guard(func() (err error) {
		f.answer, err = f.perform()
		return err
	})
	if f.err != nil {
		f.err = fmt.Errorf("%s: %w", f.op.Name, f.err)
	}
}

// perform sends the request until it is accepted or finally refused.
func (f *inflight[S]) perform() (answer S, err error) {
	unexplained, began := 0, time.Now()
	for attempt := 0; ; attempt++ {
		if f.op.Lease > 0 {
			var send bool
			if answer, send, err = f.check(); !send {
				return answer, err
			}
		}
		var operation string
		answer, operation, err = f.op.Submit(f.write.ctx, f.write)
		f.write.arrived()
		switch {
		case err == nil && operation == "":
			return answer, nil
		case err == nil:
			return answer, f.track(operation)
		case fault.Of(err) == fault.Uncertain:
			return answer, err
		}
		f.write.NotApplied()
		if errors.Is(err, ErrLate) && f.rest(attempt, began) == nil {
			continue
		}
		busy := fault.Of(err) == fault.Busy
		if !busy && !refused(err) {
			return answer, err
		}
		if !busy {
			f.write.Refused++
		}
		var waited int
		if answer, waited, err = f.explain(err, attempt); fault.Of(err) != fault.Busy {
			return answer, err
		}
		if !busy && waited == 0 {
			if unexplained++; unexplained == maxUnexplained {
				return answer, fmt.Errorf("%w: refused %d times, though the state allows it; what the cloud says should tell why: %w",
					fault.Unavailable, unexplained, err)
			}
		}
		f.r.cfg.Metrics.refused()
		if why := f.rest(attempt, began); why != nil {
			return answer, fmt.Errorf("%w: sent %d times: %w", err, attempt+1, why)
		}
	}
}

// rest pauses between two attempts. Like the reads of an operation, attempts become rarer with time: a machine may be busy for an hour,
// as with a backup, and each attempt costs a request of the budget.
func (f *inflight[S]) rest(attempt int, began time.Time) error {
	return wait.Sleep(f.write.ctx, max(f.r.cfg.Busy.Pause(attempt+1), time.Since(began)/ageShare))
}

// check reads and decides before a request with a Lease. send: the request should be sent.
func (f *inflight[S]) check() (state S, send bool, err error) {
	if f.op.Settle {
		if _, err = f.r.settle(f.write.ctx, f.op.Object, f.op.Related); err != nil {
			return state, false, err
		}
	}
	if state, err = f.op.State(f.write.ctx); err != nil {
		return state, false, err
	}
	f.write.Before = time.Now().Add(f.op.Lease) // the answer has arrived: a slow API delays, and never prevents
	err = f.op.Decide(state, f.op.Settle, nil)
	return state, fault.Of(err) == fault.Busy, err
}

// explain returns what a refusal means, and for how many operations it waited. fault.Busy: send the request again.
//
// If the machine is busy with a change of another object, this object's state does not show that. So explain reads the state only for
// the first of such refusals, which may be because of an earlier change of this object.
func (f *inflight[S]) explain(refusal error, attempt int) (state S, waited int, err error) {
	busy := fault.Of(refusal) == fault.Busy
	if f.op.State == nil || busy && attempt > 0 {
		return state, 0, refusal
	}
	waited, unsettled := f.r.settle(f.write.ctx, f.op.Object, f.op.Related)
	if busy && waited == 0 {
		return state, 0, refusal
	}
	if state, err = f.op.State(f.write.ctx); err != nil {
		return state, waited, fmt.Errorf("%w: %w", err, refusal)
	}
	err = f.op.Decide(state, unsettled == nil, refusal)
	if err == nil && unsettled == nil { // as in Settle, it may be by what another controller has begun meanwhile
		var begun int
		if begun, unsettled = f.r.settle(f.write.ctx, f.op.Object, f.op.Related); begun > 0 || unsettled != nil {
			waited, err = waited+begun, fmt.Errorf("%w: %w", fault.Busy, refusal)
		}
	}
	if unsettled != nil && fault.Of(err) == fault.Busy {
		return state, waited, fmt.Errorf("%w: %w", unsettled, refusal)
	}
	return state, waited, err
}

// track waits for the operation of the request. Only a failed one has changed nothing; if its end could not be observed, the outcome is
// unknown.
func (f *inflight[S]) track(id string) error {
	began := Operation{Object: f.op.Object, Kind: f.op.Kind, ID: id, Began: time.Now()}
	err := f.r.poller.wait(f.write.ctx, began)
	var failed *failedOperation
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		f.write.NotApplied()
		if fault.Of(failed) != fault.None {
			return failed
		}
		return fmt.Errorf("%w: %w", fault.Unavailable, failed)
	default:
		return fmt.Errorf("%w: the operation goes on unseen: %w", fault.Uncertain, err)
	}
}

// settle waits for operations of the objects that are running already, of an earlier call, another controller or a person. Their
// outcomes do not matter, because the state is read afterwards. It returns their number.
func (r *Runner) settle(ctx context.Context, objects ...string) (waited int, err error) {
	for _, object := range objects {
		if object == "" {
			continue
		}
		running, err := r.cfg.Tracker.Running(ctx, object)
		if err != nil {
			return waited, fmt.Errorf("find out what is under way with %s: %w", object, err)
		}
		for _, op := range running {
			waited++
			var failed *failedOperation
			if err := r.poller.wait(ctx, op); err != nil && !errors.As(err, &failed) {
				return waited, fmt.Errorf("wait for what is under way with %s: %w: %w", object, fault.Unavailable, err)
			}
		}
	}
	return waited, nil
}

// admit counts a waiting call and refuses too many.
func (r *Runner) admit(p budget.Priority) (leave func(), err error) {
	limit := int64(maxWaiting)
	if p == budget.Detach {
		limit += moreDetaches
	}
	if r.calls.Add(1) > limit {
		r.calls.Add(-1)
		return nil, fmt.Errorf("%w: %d calls wait already; it can be repeated later", fault.Unavailable, limit)
	}
	return func() { r.calls.Add(-1) }, nil
}
