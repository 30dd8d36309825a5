// Package ops carries out changes in a cloud: each one from its machine's queue to its outcome.
//
// A backend describes a change as an Op: how to send it, how to read the object afresh, and what a state
// means. Run does everything else, and is the only place that does: it queues the change behind those of
// the same object and machine, sends the request, tracks the operation that the cloud began, and decides
// a refusal from the state that is read after everything under way with the object has ended. It repeats
// what was refused for a passing reason, reports fault.Uncertain where a request was sent and its outcome
// is not known, and goes on with a change that was sent when its caller has gone.
//
// What a process keeps here saves requests and carries no correctness: another controller works on the
// same account.
package ops

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/telemetry"
)

// Op is one change of one object. S is what the backend needs to know of the object to decide, and what
// Run returns.
type Op[S any] struct {
	// Name says what is changed, such as "attach volume 1 to droplet 2". It begins every error, and two Ops
	// of one Object with one Name ask for the same.
	Name string
	// Kind groups operations that take about the same time, such as "attach".
	Kind string
	// Object is what is changed: one change at a time.
	Object string
	// Machine is what runs one change at a time in the cloud; "": none.
	Machine string
	// Related is a second object, in the words of the Tracker, whose operations may affect this one, such as the machine
	// in a cloud that lists attaches there; "": none.
	Related string

	// Priority and Key become those of the Write.
	Priority budget.Priority
	Key      string
	// Lease, unless it is zero, makes Run read and decide before each request, and send the request
	// within this time after the state arrived or not at all. It is for an API whose request does not say
	// which state it is meant for.
	Lease time.Duration

	// Submit sends exactly one request. It returns the id of the operation that the cloud began, or "" when
	// the change has ended with the answer, and what the answer shows of the object.
	Submit func(ctx context.Context, w *Write) (answer S, operation string, err error)
	// State reads the object afresh. Nil: every refusal is final.
	State func(ctx context.Context) (S, error)
	// Decide says what a state means: nil when it is as wanted, fault.Busy when the request is to be sent
	// again, any other kind when that is useless. It is a pure function. settled reports that nothing was
	// under way with the object when the state was read; without it only what no running operation can
	// change may be concluded, and fault.Busy says that nothing can. refusal is the cloud's answer, or nil
	// before the first request of an Op with a Lease.
	Decide func(state S, settled bool, refusal error) error
}

// Operation is what the cloud has taken on.
type Operation struct {
	// Object and Kind are the Op's. Kind is empty for an operation of others.
	Object, Kind string
	// ID is in the words of the Tracker.
	ID string
	// Began is when the request was answered; zero for an operation that was found running.
	Began time.Time
	// request is the id of the request that waits for it.
	request string
}

// Outcome is how an operation stands.
type Outcome struct {
	// Done: it has ended. Err says that it failed and has changed nothing; without a kind it is fault.Unavailable.
	// Err without Done says that the cloud does not show it.
	Done bool
	Err  error
	// Took is how long it ran, by the cloud's own times; 0: the cloud does not say.
	Took time.Duration
	// Again is how long the cloud asks to wait before the next read; 0: it does not say.
	Again time.Duration
}

// Tracker reads how operations stand. Each cloud has one.
type Tracker interface {
	// Running returns the operations of an object that have not ended. An object that does not exist has none.
	Running(ctx context.Context, object string) ([]Operation, error)
	// Outcomes reads several operations with as few requests as possible. An operation that the answer
	// lacks runs on. The answer may hold others.
	Outcomes(ctx context.Context, of []Operation) (map[string]Outcome, error)
}

// Each reads, concurrently and one by one, the operations that found lacks, and adds them. It fails only if nothing could
// be read at all; what the answer lacks otherwise could not be read this time.
func Each(
	ctx context.Context, of []Operation, found map[string]Outcome, one func(context.Context, Operation) (Outcome, error),
) (map[string]Outcome, error) {
	missing := slices.DeleteFunc(slices.Clone(of), func(op Operation) bool {
		_, known := found[op.ID]
		return known
	})
	var failed error
	var mu sync.Mutex // guards both
	var group sync.WaitGroup
	for _, op := range missing {
		group.Go(func() {
			var out Outcome
			err := Guard(func() (err error) {
				out, err = one(telemetry.WithRequest(ctx, op.request), op)
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			found[op.ID] = out
		})
	}
	group.Wait()
	if len(found) > 0 {
		failed = nil
	}
	return found, failed
}

// refused reports whether the cloud looked at the object and said no, so that its state tells why. What is
// about the credentials, a quota or the budget is not.
func refused(err error) bool {
	var answer interface{ Refused() bool }
	return errors.As(err, &answer) && answer.Refused()
}
