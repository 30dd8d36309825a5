// Package budget limits the requests to a cloud's API and orders them by priority.
//
// A cloud allows a number of requests in a minute or an hour and refuses more; a driver that exceeds its limits delays detaches
// with its own lists. A Governor counts the requests in sliding windows slightly below the limits and admits waiting requests by
// priority: detach, attach, other writes, reads that a call waits for, lists. Requests of a lower priority leave a reserve to
// those of a higher one, and a request that waits long gets a higher one. Other programs may use the same budget, so the
// Governor follows the cloud's rate-limit headers. After a refusal it pauses as long as the cloud asks, then resumes slowly.
//
// Callers call Acquire before a request and Learn after it. A refusal is a delay; it is an error only when the context ends.
package budget

import "time"

// Priority is the priority of a request.
type Priority int

// The priorities, most urgent first.
const (
	// Default counts as Write.
	Default Priority = iota
	// Detach: a pod on another node waits for the volume.
	Detach
	// Attach: a pod waits for the volume.
	Attach
	// Write is every other change: create, delete, resize, snapshots.
	Write
	// Read is a read that a call waits for.
	Read
	// List is for lists and background work.
	List
)

// Track is the priority of an ops.Tracker's reads of outcomes: a detach may wait until the operation before it on its machine has ended.
const Track = Detach

// reserve is the part of a window that requests of a priority leave to those of higher ones. It is small, so that a tight budget
// can still be used.
var reserve = [...]float64{Detach: 0, Attach: 0.01, Write: 0.02, Read: 0.04, List: 0.2}

const (
	// rise is the waiting time after which a request counts as one priority higher, up to Attach.
	rise = 10 * time.Second
	// starved is the waiting time after which a request counts as a detach: longer than the clouds' windows of a minute, shorter
	// than the timeouts of callers.
	starved = 2 * time.Minute
)

func (p Priority) String() string {
	return [...]string{"default", "detach", "attach", "write", "read", "list"}[p.known()]
}

func (p Priority) known() Priority { return max(Default, min(p, List)) }

// Rate is what an answer tells about the budget. The zero value tells nothing.
type Rate struct {
	// Limit and Remaining describe one window: the one whose Calls equal Limit, or else the one with FromHeaders. They are known
	// only if Limit > 0.
	Limit, Remaining int
	// Reset is when there is budget again; zero: unknown.
	Reset time.Time
	// Refused: the cloud refused the request because the budget is used up.
	Refused bool
	// RetryAfter is how long the cloud asks to wait after a refusal; zero: unknown.
	RetryAfter time.Duration
	// Words are the cloud's message with a refusal.
	Words string
}
