package yandex

import (
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// The kinds of operations.
const (
	kindCreate         = "create"
	kindDelete         = "delete"
	kindAttach         = "attach"
	kindDetach         = "detach"
	kindResize         = "resize"
	kindUpdate         = "update"
	kindSnapshot       = "snapshot"
	kindDeleteSnapshot = "delete_snapshot"
	kindRelocate       = "relocate"
)

// How operations stand.
const (
	outcomeRunning = "running"
	outcomeDone    = "done"
	outcomeFailed  = "failed"
)

// Operation is a change that the folder accepted, by the wall clock.
type Operation struct {
	// Kind is create, delete, attach, detach, resize, update, snapshot, delete_snapshot or relocate.
	Kind     string `json:"kind"`
	ID       string `json:"id"`
	Disk     string `json:"disk,omitempty"`
	DiskName string `json:"disk_name,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
	Instance string `json:"instance,omitempty"`
	// Accepted and Finished; the second is zero while the operation is running.
	Accepted time.Time `json:"accepted"`
	Finished time.Time `json:"finished,omitzero"`
	// Status is running, done or failed; Error is why it failed.
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
}

// Violation is something that must not have happened.
type Violation struct {
	At       time.Time `json:"at"`
	What     string    `json:"what"`
	Disk     string    `json:"disk"`
	DiskName string    `json:"disk_name"`
	Instance string    `json:"instance,omitempty"`
}

// Stats are the counters of the API and how many operations ran at once at most: of an instance, and in the
// folder, by their ids.
type Stats = account.Stats[string]

// begin remembers an operation that was accepted and returns its number.
func (c *Cloud) begin(op Operation) int {
	op.Accepted, op.Status = time.Now(), outcomeRunning
	return c.record.Add(op)
}

func (c *Cloud) end(number int, status, why string) {
	c.record.Change(number, func(op *Operation) { op.Finished, op.Status, op.Error = time.Now(), status, why })
}

// countParallel remembers how many operations run now that another one does.
func (c *Cloud) countParallel(j *job) {
	c.record.Parallel(c.Folder, len(c.running))
	if j.instance == "" {
		return
	}
	running := 0
	for _, other := range c.running {
		if other.instance == j.instance {
			running++
		}
	}
	c.record.Parallel(j.instance, running)
}

func (c *Cloud) violation(what string, d disk) {
	c.record.Violate(Violation{At: time.Now(), What: what, Disk: d.ID, DiskName: d.Name, Instance: d.Instance})
}

// trouble records that the machine did not do what the cloud wanted of it: the test's ground is gone.
func (c *Cloud) trouble(disk string, err error) {
	if err != nil {
		d := c.now.disks[disk]
		d.ID = disk
		c.violation("emulator: "+err.Error(), d)
	}
}

// Stats returns the counters since the start or the last reset.
func (c *Cloud) Stats() Stats {
	return Stats{Stats: c.server.Stats(), MaxParallel: c.record.MaxParallel()}
}

// ResetStats forgets counters, operations, exchanges and violations. The folder stays as it is.
func (c *Cloud) ResetStats() {
	c.server.ResetStats()
	c.record.Reset()
}

// Operations returns the operations since the last reset, in the order in which they were accepted.
func (c *Cloud) Operations() []Operation { return c.record.Operations() }

// Violations returns what must not have happened since the last reset.
func (c *Cloud) Violations() []Violation { return c.record.Violations() }
