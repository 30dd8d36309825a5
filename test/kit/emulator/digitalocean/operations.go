package digitalocean

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// This file is the changes: what the owner sees of each, and the actions, which run on after their answer.

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

const (
	kindAttach = "attach_volume"
	kindDetach = "detach_volume"
	kindResize = "resize"
)

// runningAction is an action that has not ended.
type runningAction struct {
	action
	errored   bool   // it will end in an error
	before    volume // what it changes, as it was
	operation int
}

type actionRequest struct {
	Type          string `json:"type"`
	DropletID     int    `json:"droplet_id"`
	SizeGigabytes int    `json:"size_gigabytes"`
	Region        string `json:"region"`
}

func (c *Cloud) startAction(r *request) answer {
	v, found := c.now.volumes[r.PathValue("volume_id")]
	if !found {
		return refuse(notFound, r.ID)
	}
	var ask actionRequest
	if err := json.Unmarshal(r.Body, &ask); err != nil {
		return refuse(badRequestBody, r.ID)
	}
	a := action{volume: v.ID, droplet: ask.DropletID, size: ask.SizeGigabytes, region: v.Region, status: statusInProgress}
	var why *problem
	var usual = c.lasts.Attach
	switch ask.Type {
	case "attach":
		a.kind, why = kindAttach, c.mayAttach(v, ask.DropletID)
	case "detach":
		a.kind, why, usual = kindDetach, c.mayDetach(v, ask.DropletID), c.lasts.Detach
	case "resize":
		a.kind, why, usual = kindResize, c.mayResize(v, ask.SizeGigabytes), c.lasts.Resize
		a.droplet = v.DropletID
	default:
		why = &badActionType
	}
	if why == nil {
		why = c.isFree(a)
	}
	if why != nil {
		return refuse(*why, r.ID)
	}
	return c.run(r, a, c.dice.Lasting(a.kind, v.Name, usual, r.Effect))
}

func (c *Cloud) mayResize(v volume, size int) *problem {
	switch {
	case size > largestVolume || size < 1:
		return &badVolumeSize
	case size <= v.SizeGiB:
		return &badVolumeShrink
	case v.DropletID != 0 && c.rules.ResizeRefused:
		return &resizeRefused
	}
	return c.mayGrow(size-v.SizeGiB, 0)
}

// isFree says whose other action is in the way: one runs at a time on a droplet and on a volume.
func (c *Cloud) isFree(a action) *problem {
	sameDroplet := func(other *action) bool { return a.droplet != 0 && other.droplet == a.droplet }
	switch {
	case c.pending(sameDroplet):
		return &pendingEvent
	case c.pending(func(other *action) bool { return other.volume == a.volume }):
		return &volumePending
	}
	return nil
}

// pending reports whether an action is running for which is says yes.
func (c *Cloud) pending(is func(*action) bool) bool {
	return account.Count(c.running, func(running *runningAction) bool { return is(&running.action) }) > 0
}

// run starts an action and answers with it, still in progress.
func (c *Cloud) run(r *request, a action, lasts time.Duration) answer {
	a.id, a.started = firstAction+len(c.now.actions), c.clock.Now()
	c.putAction(a)
	v := c.now.volumes[a.volume]
	running := &runningAction{action: a, errored: r.Effect.Errored, before: v}
	running.operation = c.begin(Operation{
		Kind: a.kind, Volume: v.ID, VolumeName: v.Name, Droplet: a.droplet, Action: a.id,
	})
	c.running[a.id] = running
	c.countParallel(a.droplet)
	if c.rules.ChangeOnAccept {
		c.apply(a)
	}
	shown := reply(http.StatusAccepted, map[string]any{"action": c.showAction(a)}, r.ID)
	c.later.After(lasts, func() { c.finish(running) })
	return shown
}

// finish ends an action with what it does, unless it was ended before.
func (c *Cloud) finish(running *runningAction) {
	if c.running[running.id] != running {
		return
	}
	delete(c.running, running.id)
	a := running.action
	a.status, a.completed = statusCompleted, c.clock.Now()
	if running.errored {
		a.status = statusErrored
		c.takeBack(running)
	} else {
		c.apply(a)
		c.plug(a)
	}
	c.putAction(a)
	c.end(running.operation, a.status)
}

// apply makes an action's change visible in the API.
func (c *Cloud) apply(a action) {
	v, found := c.now.volumes[a.volume]
	if !found {
		return
	}
	switch a.kind {
	case kindAttach:
		v.DropletID = a.droplet
	case kindDetach:
		v.DropletID = 0
	case kindResize:
		v.SizeGiB = a.size
	}
	c.putVolume(v)
}

// takeBack undoes what an action that has failed showed when it was accepted.
func (c *Cloud) takeBack(failed *runningAction) {
	if v, found := c.now.volumes[failed.volume]; found && c.rules.ChangeOnAccept {
		v.DropletID, v.SizeGiB = failed.before.DropletID, failed.before.SizeGiB
		c.putVolume(v)
	}
}

func (c *Cloud) listVolumeActions(r *request) answer {
	view, id := c.view(r.Effect), r.PathValue("volume_id")
	if _, found := view.volumes[id]; !found {
		return refuse(notFound, r.ID)
	}
	return page(r, "actions", view.actionList(func(a action) bool { return a.volume == id }), c.showAction)
}

func (c *Cloud) listActions(r *request) answer {
	return page(r, "actions", c.view(r.Effect).actionList(func(action) bool { return true }), c.showAction)
}

func (c *Cloud) getAction(r *request) answer {
	a, found := c.view(r.Effect).action(r.PathNumber("action_id"))
	if !found {
		return refuse(notFound, r.ID)
	}
	return reply(http.StatusOK, map[string]any{"action": c.showAction(a)}, r.ID)
}

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
	if droplet != 0 {
		c.record.Parallel(droplet, account.Count(c.running, func(a *runningAction) bool { return a.droplet == droplet }))
	}
}
