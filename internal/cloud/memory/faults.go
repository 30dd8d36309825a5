package memory

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Call names a method of the contract that a fault can be armed on.
type Call string

// The calls. Capabilities has none, since it cannot fail.
const (
	CallCapacity       Call = "Capacity"
	CallCheck          Call = "Check"
	CallCreateVolume   Call = "CreateVolume"
	CallFindVolume     Call = "FindVolume"
	CallGetVolume      Call = "GetVolume"
	CallDeleteVolume   Call = "DeleteVolume"
	CallListVolumes    Call = "ListVolumes"
	CallExpandVolume   Call = "ExpandVolume"
	CallModifyVolume   Call = "ModifyVolume"
	CallAttach         Call = "Attach"
	CallDetach         Call = "Detach"
	CallCreateSnapshot Call = "CreateSnapshot"
	CallFindSnapshot   Call = "FindSnapshot"
	CallGetSnapshot    Call = "GetSnapshot"
	CallDeleteSnapshot Call = "DeleteSnapshot"
	CallListSnapshots  Call = "ListSnapshots"
)

// Fault is one thing that goes wrong with one call.
type Fault struct {
	refuse, lose error
	hold, keep   <-chan struct{}
	half         bool
}

// Refuse answers with the error, usually a kind, and changes nothing.
func Refuse(err error) Fault { return Fault{refuse: err} }

// LoseRequest answers fault.Uncertain, and the change is never made.
func LoseRequest() Fault {
	return Fault{refuse: fmt.Errorf("connection cut after the request: %w", fault.Uncertain)}
}

// LoseAnswer answers fault.Uncertain although the change is made. A read that loses its answer is
// fault.Unavailable.
func LoseAnswer() Fault { return Fault{lose: fmt.Errorf("connection cut before the answer")} }

// Hold keeps the call from starting until the channel is closed. A context that ends meanwhile
// leaves nothing behind.
func Hold(release <-chan struct{}) Fault { return Fault{hold: release} }

// HoldAnswer makes the change at once and keeps the answer back until the channel is closed. A
// context that ends meanwhile makes a write fault.Uncertain.
func HoldAnswer(release <-chan struct{}) Fault { return Fault{keep: release} }

// HalfRestore makes CreateVolume from a source end after the copy, which has the source's size, and
// answer fault.Uncertain before the step that would have grown it.
func HalfRestore() Fault {
	return Fault{half: true, lose: fmt.Errorf("growing the copy was interrupted")}
}

// Arm makes the next calls of this method go wrong, one fault for each call in this order.
func (a *Account) Arm(call Call, faults ...Fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed[call] = append(a.armed[call], faults...)
}

// Armed returns how many faults of this method no call has met yet.
func (a *Account) Armed(call Call) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.armed[call])
}

// begin is where a call leaves the program: it takes the armed fault, if there is one, and lets it
// act before the effect.
func (a *Account) begin(ctx context.Context, call Call) (Fault, error) {
	if err := ctx.Err(); err != nil {
		return Fault{}, fmt.Errorf("%s: not sent: %w", call, err)
	}
	f := a.next(call)
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return Fault{}, fmt.Errorf("%s: not sent: %w", call, ctx.Err())
		}
	}
	if f.refuse != nil {
		return Fault{}, fmt.Errorf("%s: %w", call, f.refuse)
	}
	return f, nil
}

func (a *Account) next(call Call) Fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	queue := a.armed[call]
	if len(queue) == 0 {
		return Fault{}
	}
	a.armed[call] = queue[1:]
	return queue[0]
}

// end lets the fault act between the effect and the answer.
func (f Fault) end(ctx context.Context, call Call, changed bool) error {
	lost := fault.Unavailable
	if changed {
		lost = fault.Uncertain
	}
	if f.keep != nil {
		select {
		case <-f.keep:
		case <-ctx.Done():
			if changed {
				return fmt.Errorf("%s: %w: %w", call, fault.Uncertain, ctx.Err())
			}
			return fmt.Errorf("%s: %w", call, ctx.Err())
		}
	}
	if f.lose != nil {
		return fmt.Errorf("%s: %w: %w", call, lost, f.lose)
	}
	return nil
}
