// Package budget spends a cloud's API budget where it matters most.
//
// A cloud allows so many requests in a minute or an hour and refuses the rest; a driver that runs into
// the limit loses detaches in a flood of its own lists. A Governor counts what was sent in sliding
// windows just under the limits and hands out the rest by priority: detach, attach, other writes,
// reads that somebody waits for, lists. The lower ones leave a reserve to the higher ones; whoever
// waits long rises. It trusts what the cloud says about its budget (others use it too), and a
// refusal proves that the window is full: it pauses as long as the cloud asks for and goes on slowly.
//
// A Transport puts a Governor under an HTTP client; other protocols call Acquire before a request and
// Learn after it. A refusal is a delay and no error until the context ends.
package budget

import (
	"context"
	"time"
)

// Priority is how urgent a request is.
type Priority int

// The priorities, most urgent first.
const (
	// Default is chosen by a Transport from the method: Write, or Read for GET and HEAD.
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

// WithPriority gives requests made with the context a priority.
func WithPriority(ctx context.Context, p Priority) context.Context { return ctx }

// PriorityOf returns the priority that the context has, or Default.
func PriorityOf(ctx context.Context) Priority { return Default }

// Window is one limit of a cloud: so many calls in so much time.
type Window struct {
	Calls int
	Per   time.Duration
	// Told: this is the window that the cloud's headers speak of.
	Told bool
}

// Config is what a Governor needs.
type Config struct {
	// Name tells several Governors of one cloud apart in metrics and errors, such as "list". May
	// be empty.
	Name string
	// Windows are the limits. All of them hold. None: nothing is limited until the cloud refuses.
	Windows []Window
	// Metrics may be nil.
	Metrics *Metrics
}

// Rate is what an answer says about the budget. The zero value says nothing.
type Rate struct {
	// Limit and Remaining are those of the window that has Told; known only if Limit > 0.
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

// Governor hands out the budget. It has no goroutine of its own.
type Governor struct{}

// New makes a Governor.
func New(cfg Config) *Governor { return &Governor{} }

// Acquire waits until a request may be sent. If the context ends first, the error is
// fault.Unavailable, wraps the context's and has the words of the last refusal: nothing was sent.
func (g *Governor) Acquire(ctx context.Context, p Priority) error { return nil }

// Learn takes in what an answer says. It is called after every request; the zero Rate is fine.
func (g *Governor) Learn(r Rate) {}
