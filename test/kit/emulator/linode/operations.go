package linode

import (
	"strconv"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// This file is the changes: what the owner sees of each, the jobs, which run on after their answer, and the events that tell of them.

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

// job is an operation that runs on after its answer.
type job struct {
	kind           string
	volume, linode int
	errored        bool // it will fail
	operation      int
	// ends makes the job's change visible.
	ends func(v volume, failed bool)
}

// start begins a job on a volume. Its change is made when it is over, at once if it takes no time.
func (c *Cloud) start(j job, lasts time.Duration) {
	v := c.now.volumes[j.volume]
	j.operation = c.begin(Operation{Kind: j.kind, Volume: v.ID, Label: v.Label, Linode: j.linode})
	c.jobs[j.operation] = &j
	if j.linode != 0 {
		c.record.Parallel(j.linode, account.Count(c.jobs, func(other *job) bool { return other.linode == j.linode }))
	}
	c.later.After(lasts, func() { c.finish(&j) })
}

// finish ends a job with what it does, unless it was ended before.
func (c *Cloud) finish(j *job) {
	if c.jobs[j.operation] != j {
		return
	}
	delete(c.jobs, j.operation)
	status := finished
	if j.errored {
		status = failed
	}
	if v, found := c.now.volumes[j.volume]; found {
		j.ends(v, j.errored)
	}
	c.end(j.operation, status)
}

// cancel ends the jobs for which is says yes, without their change.
func (c *Cloud) cancel(is func(*job) bool) {
	for number, j := range c.jobs {
		if is(j) {
			delete(c.jobs, number)
			c.end(number, canceled)
		}
	}
}

// running reports whether there is a job for which is says yes.
func (c *Cloud) running(is func(*job) bool) bool { return account.Count(c.jobs, is) > 0 }

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

// event is an operation as the API tells of it.
type event struct {
	Operation
	id       int
	accepted time.Time // by the account's clock, as ended
	ended    time.Time
}

const firstEvent = 500_001

// noteEvent makes an operation that was accepted an event; number is the operation's.
func (c *Cloud) noteEvent(number int, op Operation) {
	c.events[number] = event{Operation: op, id: firstEvent + number, accepted: c.clock.Now()}
}

func (c *Cloud) endEvent(number int, status string) {
	e := c.events[number]
	e.Status, e.ended = status, c.clock.Now()
	c.events[number] = e
}

// status is one of those that the API has.
func (e event) status() string {
	if e.Status == canceled {
		return failed
	}
	return e.Status
}

// listEvents answers with the newest first, as the real API does.
func (c *Cloud) listEvents(r *request) answer {
	keep, field := filter(r, "action", "entity.id", "entity.type")
	if field != "" {
		return c.refuseFilter(field)
	}
	kept := func(e event) bool {
		return keep(values{"action": {e.Kind}, "entity.id": {strconv.Itoa(e.Volume)}, "entity.type": {"volume"}})
	}
	return page(c, r, account.Sorted(c.events, kept, func(a, b event) int { return b.id - a.id }), c.showEvent)
}

func (c *Cloud) showEvent(e event) any {
	shown := map[string]any{
		"id": e.id, "action": e.Kind, "status": e.status(), "created": stamp(e.accepted), "percent_complete": 0, "message": "",
		"duration": 0.0, "time_remaining": nil, "read": false, "seen": false, "username": "emulator",
		"rate": nil, "details": struct{}{}, "secondary_entity": nil,
		"entity": eventEntity("volume", e.Volume, e.Label, "/v4/volumes/"),
	}
	if !e.ended.IsZero() {
		shown["percent_complete"], shown["duration"] = 100, e.ended.Sub(e.accepted).Seconds()
	}
	if e.status() == failed {
		shown["message"] = "The operation did not come to its end." // assumed
	}
	if e.Linode != 0 {
		linode := eventEntity("linode", e.Linode, c.now.linodes[e.Linode].Label, "/v4/linode/instances/")
		linode["id"] = strconv.Itoa(e.Linode) // a text here, a number in entity
		shown["secondary_entity"] = linode
	}
	return shown
}

func eventEntity(kind string, id int, label, below string) map[string]any {
	return map[string]any{"id": id, "type": kind, "label": label, "url": below + strconv.Itoa(id)}
}
