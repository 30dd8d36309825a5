package digitalocean

import (
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// Operation is a change that the account accepted, by the wall clock.
type Operation struct {
	// Kind is create_volume, delete_volume, create_snapshot, attach_volume, detach_volume or resize.
	Kind       string `json:"kind"`
	Volume     string `json:"volume"`
	VolumeName string `json:"volume_name"`
	Droplet    int    `json:"droplet,omitempty"`
	// Action is the id of the action; 0 for what needs none.
	Action   int       `json:"action,omitempty"`
	Accepted time.Time `json:"accepted"`
	// Finished is zero while the operation is running.
	Finished time.Time `json:"finished,omitzero"`
	Status   string    `json:"status"`
}

// Violation is something that must not have happened.
type Violation struct {
	At         time.Time `json:"at"`
	What       string    `json:"what"`
	Volume     string    `json:"volume"`
	VolumeName string    `json:"volume_name"`
	Droplet    int       `json:"droplet,omitempty"`
}

// Stats are the counters of the API and how many actions ran at once on one droplet at most.
type Stats = account.Stats[int]

// begin remembers an operation that was accepted and returns its number.
func (c *Cloud) begin(op Operation) int {
	op.Accepted, op.Status = time.Now(), statusInProgress
	return c.record.Add(op)
}

func (c *Cloud) end(number int, status string) {
	c.record.Change(number, func(op *Operation) { op.Finished, op.Status = time.Now(), status })
}

func (c *Cloud) violation(what string, v volume, droplet int) {
	c.record.Violate(Violation{
		At: time.Now(), What: what, Volume: v.ID, VolumeName: v.Name, Droplet: droplet,
	})
}

// trouble records that the machine did not do what the cloud wanted of it: the test's ground is gone.
func (c *Cloud) trouble(v volume, err error) {
	if err != nil {
		c.violation("emulator: "+err.Error(), v, v.DropletID)
	}
}

// countParallel notes how many actions run on a droplet.
func (c *Cloud) countParallel(droplet int) {
	if droplet == 0 {
		return
	}
	n := 0
	for _, running := range c.running {
		if running.droplet == droplet {
			n++
		}
	}
	c.record.Parallel(droplet, n)
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
