// Package ops runs changes in a cloud, from the queue of the machine to the outcome.
//
// A backend describes a change as an Op: how to send the request, how to read the object, and what its state means. Run does
// everything else. It queues the change after others of the same object and machine, sends the request, and follows the operation
// that the cloud begins. After a refusal it waits until no operation of the object is running, reads the state, and decides by that.
// It repeats a request that was refused for a temporary reason, returns fault.Uncertain if a request was sent and its outcome is
// unknown, and completes a change that was sent even when its caller has gone.
//
// The state that a process keeps here only saves requests; correctness never depends on it, because another controller may work on
// the same account.
package ops

import (
	"context"
	"errors"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
)

// Op is one change of one object. S is what the backend needs to know of the object to decide, and what
// Run returns.
type Op[S any] struct {
	// Name is the change, such as "attach volume 1 to droplet 2". Every error begins with it, and Ops with the same Object and
	// Name are the same change: the later one gets the result of an earlier one whose caller has gone.
	Name string
	// Kind groups operations of similar duration, such as "attach".
	Kind string
	// Object is the changed object. One change of it runs at a time.
	Object string
	// Machine is the machine whose changes the cloud runs one at a time; "": none.
	Machine string
	// Related is a second object whose operations may affect this one, such as the machine in a cloud that lists attaches
	// there. It is named as the Tracker names it; "": none.
	Related string

	// Priority and Key are those of the Write.
	Priority budget.Priority
	Key      string
	// Lease, if not zero, makes Run read the state and decide before each request, and send the request within this time after
	// the read or not at all. It is for requests that do not contain the state for which they are meant. Settle: before that read
	// Run waits until no operation of the object is running, because the state does not show one.
	Lease  time.Duration
	Settle bool

	// Submit sends exactly one request. It returns the id of the operation that the cloud begins, or "" if the change is complete
	// with the answer, and the object as the answer shows it.
	Submit func(ctx context.Context, w *Write) (answer S, operation string, err error)
	// State reads the object. Nil: every refusal is final.
	State func(ctx context.Context) (S, error)
	// Decide returns what a state means: nil if it is the wanted one, fault.Busy if the request should be sent again, any other kind
	// if that is useless. It is a pure function. settled: no operation of the object was running at the read; otherwise Decide
	// may conclude only what no running operation can change, and returns fault.Busy for everything else. refusal is the cloud's
	// answer, or nil before the first request of an Op with a Lease.
	Decide func(state S, settled bool, refusal error) error
}

// Operation is an operation that the cloud has begun.
type Operation struct {
	// Object and Kind are the Op's. Kind is empty for an operation of others.
	Object, Kind string
	// ID is the id for the Tracker.
	ID string
	// Began is when the request was answered; zero for an operation that this process did not begin.
	Began time.Time
	// request is the id of the request that waits for it.
	request string
}

// Outcome is the state of an operation.
type Outcome struct {
	// Done: the operation has ended. Then Err is its failure, after which nothing is changed; without a kind it is
	// fault.Unavailable. Err without Done: the cloud does not show the operation.
	Done bool
	Err  error
	// Took is its duration by the cloud's own times; 0: unknown.
	Took time.Duration
	// Again is the time that the cloud asks to wait before the next read; 0: none.
	Again time.Duration
}

// Tracker reads the states of operations. Each cloud has one.
type Tracker interface {
	// Running returns the operations of an object that have not ended. An object that does not exist has none.
	Running(ctx context.Context, object string) ([]Operation, error)
	// Outcome reads an operation, with the priority budget.Track. An error that the cloud gives for a reason, such as fault.Denied, ends
	// the wait, and so does fault.NotFound for an operation that is not new. Others concern only this read; a later one may succeed.
	Outcome(ctx context.Context, op Operation) (Outcome, error)
}

// Lister is a Tracker of a cloud that shows many operations in one list. Then operations that are not due are read together with several
// that are, so the end of one that is much shorter than the mean is noticed. Otherwise each operation costs a request, and is read only
// when it is due.
type Lister interface {
	// List reads several operations with as few requests as possible, of the priority budget.Track, and adds them to found, and others
	// if it shows them. Those that it lacks are read with Outcome, and all of them if it fails.
	List(ctx context.Context, of []Operation, found map[string]Outcome) error
}

// refused reports whether the cloud refused because of the object's state, as opposed to the credentials, a quota or the budget.
func refused(err error) bool {
	var answer interface{ Refused() bool }
	return errors.As(err, &answer) && answer.Refused()
}
