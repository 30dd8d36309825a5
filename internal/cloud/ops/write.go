package ops

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// AnswerTimeout is the time limit for the answer to a sent request.
const AnswerTimeout = 60 * time.Second

var errSilent = fmt.Errorf("the cloud has not answered for %s: %w", AnswerTimeout, context.DeadlineExceeded)

// ErrLate is the error of a request that was not sent because Write.Before had passed.
var ErrLate = fmt.Errorf("%w: the state that it was decided by is too old by now", fault.Unavailable)

// Write is the state of one request that changes something. Either the request is sent, or its caller goes before that and it is never
// sent.
type Write struct {
	// Priority is the request's priority in the API budget.
	Priority budget.Priority
	// Key is the idempotency key, in clouds that have such.
	Key string
	// Before is the latest moment to send; zero: any.
	Before time.Time
	// Refused is how many earlier requests of the change were refused, not counting those because of a change of the same machine.
	Refused int

	caller context.Context
	ctx    context.Context // of the change; it may outlive the caller
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	sent bool // and not known to have changed nothing
	left bool // the caller has gone
	over bool // the change has ended
	// answered stops the timeout of the answer, limit that of the operation.
	answered context.CancelFunc
	limit    *time.Timer
	// late ends a request that has no connection by Before.
	late *time.Timer
}

// NewWrite returns a Write whose request ends with ctx. Run makes its own.
func NewWrite(ctx context.Context, p budget.Priority) *Write {
	return &Write{Priority: p, caller: ctx, ctx: ctx, cancel: func(error) {}}
}

// MarkSent is called right before the request is sent, which must not happen after an error. The context that it returns has the timeout
// of the answer and does not end with the caller, because the outcome of a cancelled request is unknown. With Before it ends then,
// with ErrLate, unless Connected is called.
func (w *Write) MarkSent() (context.Context, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.sent && w.caller.Err() != nil:
		return nil, fmt.Errorf("%w: nothing was sent: %w", fault.Unavailable, w.caller.Err())
	case !w.Before.IsZero() && time.Now().After(w.Before):
		return nil, ErrLate
	}
	w.sent = true
	ctx, cancel := context.WithTimeoutCause(w.ctx, AnswerTimeout, errSilent)
	w.answered = cancel
	if !w.Before.IsZero() {
		var end context.CancelCauseFunc
		ctx, end = context.WithCancelCause(ctx)
		w.late = time.AfterFunc(time.Until(w.Before), func() { end(ErrLate) })
		w.answered = func() {
			w.late.Stop()
			end(nil)
			cancel()
		}
	}
	return ctx, nil
}

// Connecting is called when the request waits for a connection, also for another one if the first broke before it was written.
func (w *Write) Connecting() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late != nil {
		w.late.Reset(time.Until(w.Before))
	}
}

// Connected is called when the request has a connection, right before it is written.
func (w *Write) Connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late != nil {
		w.late.Stop()
	}
}

// NotApplied is called when the answer proves that the request has changed nothing. Then it may be sent again.
func (w *Write) NotApplied() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.land()
	w.sent = false
	if w.left {
		w.cancel(context.Canceled) // no caller waits for another attempt
	}
}

// land stops the timeout of the answer.
func (w *Write) land() {
	if w.answered != nil {
		w.answered()
		w.answered = nil
	}
}

// arrived is called when the answer has been read.
func (w *Write) arrived() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.land()
}

// leave is called when the caller goes. It reports whether the change continues without it, for at most limit.
func (w *Write) leave(why error, limit time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	if !w.sent || w.over {
		w.cancel(why)
		return false
	}
	w.limit = time.AfterFunc(limit, func() { w.cancel(context.DeadlineExceeded) })
	return true
}

// end is called when the change has ended.
func (w *Write) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.land()
	if w.limit != nil {
		w.limit.Stop()
	}
	w.cancel(nil)
}

// detached reports whether the change was sent and its caller has gone.
func (w *Write) detached() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent && w.left
}
