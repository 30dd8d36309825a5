// Package budget spends a cloud's API budget where it matters most.
//
// A cloud allows so many requests in a minute or an hour and refuses the rest; a driver that runs into
// the limit loses detaches in a flood of its own lists. A Governor counts what was sent in sliding
// windows just under the limits and hands out the rest by priority: detach, attach, other writes,
// reads that somebody waits for, lists. The lower ones leave a reserve to the higher ones; whoever
// waits long rises. It trusts what the cloud says about its budget (others use it too), and a
// refusal proves that the window is full: it pauses as long as the cloud asks for and goes on slowly.
//
// Acquire is called before a request and Learn after it. A refusal is a delay and no error until the context ends.
package budget

import "time"

// Priority is how urgent a request is.
type Priority int

// The priorities, most urgent first.
const (
	// Default is no priority of its own; it counts as Write.
	Default Priority = iota
	// Detach: a pod waits on another machine until the volume is free.
	Detach
	// Attach: a pod waits.
	Attach
	// Write is every other change: create, delete, resize, snapshots.
	Write
	// Read is a look that a call waits for.
	Read
	// List is what nobody waits for urgently: listings and things done in the background.
	List
)

// reserve is the part of a window that requests of a priority leave to the more urgent ones. It is
// small: a budget that is only just enough must not be lost to it.
var reserve = [...]float64{Detach: 0, Attach: 0.01, Write: 0.02, Read: 0.04, List: 0.2}

const (
	// rise is how long a request waits until it counts as one priority higher, up to Attach.
	rise = 10 * time.Second
	// starved is how long it waits until it counts as a detach: more than the minute in which clouds
	// hand out their budget, and less than callers wait.
	starved = 2 * time.Minute
)

func (p Priority) String() string {
	return [...]string{"default", "detach", "attach", "write", "read", "list"}[p.known()]
}

func (p Priority) known() Priority { return max(Default, min(p, List)) }

// Rate is what an answer says about the budget. The zero value says nothing.
type Rate struct {
	// Limit and Remaining are those of one window: the one whose Calls are Limit, else the one
	// that has FromHeaders. Known only if Limit > 0.
	Limit, Remaining int
	// Reset is when the cloud says that there is budget again. May be zero.
	Reset time.Time
	// Refused: the request was not carried out, for want of budget.
	Refused bool
	// RetryAfter is how long the cloud asks to wait after a refusal. May be zero.
	RetryAfter time.Duration
	// Words are what the cloud said when it refused, for whoever has to be told.
	Words string
}
