package trouble

import "fmt"

// Kind is one thing that can go wrong with a call.
type Kind string

// The faults of a cloud.
const (
	// Refused: the call is answered with a passing error and changes nothing.
	Refused Kind = "refused"
	// LostRequest: the connection breaks before the call has an effect.
	LostRequest Kind = "lost-request"
	// LostAnswer: the connection breaks after the effect.
	LostAnswer Kind = "lost-answer"
	// Slow: the change takes much longer than usual, often longer than anybody waits.
	Slow Kind = "slow"
	// Failed: the change is accepted, takes its time and then fails.
	Failed Kind = "failed"
	// Stale: a read shows what was true a while ago.
	Stale Kind = "stale"
	// Full: there is no room.
	Full Kind = "full"
	// Throttled: too many requests; nothing changes.
	Throttled Kind = "throttled"
	// Pending: the machine has another change under way; nothing changes.
	Pending Kind = "pending"
)

// The disturbances on the side of the callers. They are no faults of the cloud and not counted as such.
const (
	// Cancelled: the sidecar goes away in the middle of the call.
	Cancelled Kind = "cancelled"
	// Hurried: the call has a deadline that is too short.
	Hurried Kind = "hurried"
	// Twice: two leaders of one sidecar send the same call.
	Twice Kind = "twice"
	// Late: something goes on that had been given up long ago.
	Late Kind = "late"
)

// Fault is one thing that went wrong: the nth call of this name for this object.
type Fault struct {
	Call, Object string
	Nth          int
	Kind         Kind
}

func (f Fault) String() string {
	return fmt.Sprintf("%s %s #%d: %s", f.Call, f.Object, f.Nth, f.Kind)
}

// Chance is how probable a fault is for one call.
type Chance struct {
	kind Kind
	p    float64
}

// Chance is that of the kind with this probability.
func (k Kind) Chance(p float64) Chance { return Chance{k, p} }

// CrashPoint is a place within a call of the cloud; "" is none.
type CrashPoint string

// The places.
const (
	// BeforeEffect: the call never reaches the cloud.
	BeforeEffect CrashPoint = "before the effect"
	// AfterEffect: the controller never gets the answer.
	AfterEffect CrashPoint = "after the effect"
)
