package linode

import (
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// The kinds of operations, as the API's events name them.
const (
	kindCreate = "volume_create"
	kindClone  = "volume_clone"
	kindAttach = "volume_attach"
	kindDetach = "volume_detach"
	kindResize = "volume_resize"
	kindDelete = "volume_delete"
	kindUpdate = "volume_update"
)

// How operations stand.
const (
	started  = "started"
	finished = "finished"
	failed   = "failed"
	canceled = "canceled"
)

// Operation is a change that the account accepted, by the wall clock.
type Operation struct {
	// Kind as the API's events name it: volume_create, volume_clone, volume_attach, volume_detach,
	// volume_resize, volume_update or volume_delete.
	Kind   string `json:"kind"`
	Volume int    `json:"volume"`
	Label  string `json:"label"`
	Linode int    `json:"linode,omitempty"`
	// Accepted and Finished; the second is zero while the operation is running.
	Accepted time.Time `json:"accepted"`
	Finished time.Time `json:"finished,omitzero"`
	// Status is started, finished, failed or canceled.
	Status string `json:"status"`
}

// Violation is something that must not have happened.
type Violation struct {
	At     time.Time `json:"at"`
	What   string    `json:"what"`
	Volume int       `json:"volume"`
	Label  string    `json:"label"`
	Linode int       `json:"linode,omitempty"`
}

// Stats are the counters of the API and how many attaches and detaches ran at once on one Linode at most.
type Stats = account.Stats[int]

// begin remembers an operation that was accepted and returns its number.
func (c *Cloud) begin(op Operation) int {
	op.Accepted, op.Status = time.Now(), started
	number := c.record.Add(op)
	c.noteEvent(number, op)
	return number
}

func (c *Cloud) end(number int, status string) {
	c.record.Change(number, func(op *Operation) { op.Finished, op.Status = time.Now(), status })
	c.endEvent(number, status)
}

func (c *Cloud) violation(what string, v volume, linode int) {
	c.record.Violate(Violation{
		At: time.Now(), What: what, Volume: v.ID, Label: v.Label, Linode: linode,
	})
}

// trouble records that the machine did not do what the cloud wanted of it: the test's ground is gone.
func (c *Cloud) trouble(v volume, err error) {
	if err != nil {
		c.violation("emulator: "+err.Error(), v, v.Linode)
	}
}

// Stats returns the counters since the start or the last reset.
func (c *Cloud) Stats() Stats {
	return Stats{Stats: c.Server.Stats(), MaxParallel: c.record.MaxParallel()}
}

// ResetStats forgets counters, operations, exchanges and violations. The account stays as it is.
func (c *Cloud) ResetStats() {
	c.Server.ResetStats()
	c.record.Reset()
}

// Operations returns the operations since the last reset, in the order in which they were accepted.
func (c *Cloud) Operations() []Operation { return c.record.Operations() }

// Violations returns what must not have happened since the last reset.
func (c *Cloud) Violations() []Violation { return c.record.Violations() }
