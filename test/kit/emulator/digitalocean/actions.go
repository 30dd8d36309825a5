package digitalocean

import (
	"encoding/json"
	"net/http"
	"time"
)

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

func (c *Cloud) mayAttach(v volume, droplet int) *problem {
	d, found := c.now.droplets[droplet]
	switch {
	case !found:
		return &notFound
	case d.Region != v.Region:
		return &otherRegion
	case v.DropletID != 0:
		return &alreadyAttached
	case len(c.attachedTo(&c.now, droplet)) >= c.rules.volumesPerDroplet():
		return &tooManyVolumes
	}
	return nil
}

func (c *Cloud) mayDetach(v volume, droplet int) *problem {
	coming := c.pending(func(a *action) bool { return a.kind == kindAttach && a.volume == v.ID && a.droplet == droplet })
	if (v.DropletID == 0 || v.DropletID != droplet) && !coming {
		return &notAttached
	}
	return nil
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
	for _, running := range c.running {
		if is(&running.action) {
			return true
		}
	}
	return false
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
	if lasts == 0 {
		c.finish(running)
	} else {
		c.later.After(lasts, func() { c.finish(running) })
	}
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

// plug makes an action's change to the machine.
func (c *Cloud) plug(a action) {
	v, found := c.now.volumes[a.volume]
	if !found {
		return
	}
	d := c.now.droplets[a.droplet]
	switch a.kind {
	case kindAttach:
		if d.DeviceDir != "" {
			c.trouble(v, c.disks.Attach(disk(v), d.DeviceDir))
		}
	case kindDetach:
		c.unplug(v, d)
	case kindResize:
		c.trouble(v, c.disks.Grow(disk(v)))
	}
}

// unplug takes a volume away from a machine, as a cloud does: whether it is in use or not. That it was
// in use is what a test must see.
func (c *Cloud) unplug(v volume, d Droplet) {
	if c.Held(v.ID) {
		c.violation("detached while in use", v, d.ID)
	}
	inUse, err := c.disks.Detach(disk(v))
	if inUse {
		c.violation("detached while its device was mounted or open", v, d.ID)
	}
	c.trouble(v, err)
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
	a, found := c.view(r.Effect).action(pathNumber(r, "action_id"))
	if !found {
		return refuse(notFound, r.ID)
	}
	return reply(http.StatusOK, map[string]any{"action": c.showAction(a)}, r.ID)
}
