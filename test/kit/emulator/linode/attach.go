package linode

import (
	"cmp"
	"encoding/json"
	"slices"
)

// attachRequest has all fields that clients send.
type attachRequest struct {
	LinodeID int   `json:"linode_id"`
	Persists *bool `json:"persist_across_boots"`
}

func (a attachRequest) persists() bool { return a.Persists == nil || *a.Persists }

// attachVolume claims the Linode at once; the device is there later.
func (c *Cloud) attachVolume(r *request) answer {
	v, found := c.now.volumes[pathNumber(r, "volumeId")]
	if !found {
		return c.refuse(notFound)
	}
	var ask attachRequest
	if err := json.Unmarshal(r.Body, &ask); err != nil {
		return c.refuse(badJSON)
	}
	if why := c.mayAttach(v, ask); why != nil {
		return c.refuse(*why)
	}
	v = c.claim(v, ask)
	shown := ok(c.showVolume(r, &c.now, v))
	c.startAttach(v, ask.LinodeID, r.Effect)
	return shown
}

// claim shows a volume on its Linode, without a device yet.
func (c *Cloud) claim(v volume, ask attachRequest) volume {
	v.Linode, v.IOReady, v.Persists = ask.LinodeID, false, ask.persists()
	c.putVolume(v)
	return c.now.volumes[v.ID]
}

func (c *Cloud) startAttach(v volume, linode int, e effect) {
	// A volume that is still being made can be attached, but has nothing yet to show.
	lasts := c.dice.Lasting(kindAttach, v.Label, c.lasts.Attach, e) + max(0, v.ready.Sub(c.clock.Now()))
	c.start(job{kind: kindAttach, volume: v.ID, linode: linode, errored: e.Errored, ends: func(v volume, failed bool) {
		switch {
		case failed && c.rules.FailedAttachStays:
		case failed:
			v.Linode, v.Persists = 0, false
		default:
			v = c.plug(v, c.now.linodes[linode])
			v.IOReady = true
		}
		c.putVolume(v)
	}}, lasts)
}

// mayAttach says why a volume cannot be attached.
func (c *Cloud) mayAttach(v volume, ask attachRequest) *refusal {
	l, found := c.now.linodes[ask.LinodeID]
	switch {
	case !found:
		return &notFound
	case v.Linode != 0:
		return &attached
	case v.Status == statusDeleting || v.Status == statusBroken:
		return &notActive
	case v.Status == statusCreating && c.rules.AttachWhileCreatingRefused:
		return &notActive
	case l.Region != v.Region:
		return &otherRegion
	case c.isBusy(l):
		return &linodeBusy
	}
	used := l.disks() + len(c.now.attachedTo(l.ID))
	switch {
	case used >= l.deviceLimit():
		return &attachLimit
	case !ask.persists() && l.Status != statusRunning:
		return &notRunning
	case ask.persists() && l.disks()+len(c.now.volumeList(func(v volume) bool { return v.Linode == l.ID && v.Persists })) >= c.configSlots(l):
		return &persistLimit
	case ask.persists() && l.Configs > 1:
		return &manyConfigs
	}
	return nil
}

// configSlots is how many devices a boot configuration of the Linode has.
func (c *Cloud) configSlots(l Linode) int { return cmp.Or(c.rules.ConfigSlots, l.deviceLimit()) }

// isBusy: a Linode that changes its own state takes no volume meanwhile.
func (c *Cloud) isBusy(l Linode) bool {
	busy := []string{"booting", "busy", "rebooting", "shutting_down", "migrating", "rebuilding"}
	return slices.Contains(busy, l.Status) ||
		c.rules.OneChangePerLinode && c.running(func(j *job) bool { return j.linode == l.ID })
}

// detachVolume answers at once; the volume is free when the device has gone.
func (c *Cloud) detachVolume(r *request) answer {
	v, found := c.now.volumes[pathNumber(r, "volumeId")]
	if !found {
		return c.refuse(notFound)
	}
	if v.Linode == 0 {
		if c.rules.DetachOfFreeRefused {
			return c.refuse(notAttached)
		}
		return ok(struct{}{})
	}
	if c.running(func(j *job) bool { return j.kind == kindDetach && j.volume == v.ID }) {
		return ok(struct{}{})
	}
	l := c.now.linodes[v.Linode]
	if c.isBusy(l) {
		return c.refuse(linodeBusy)
	}
	c.cancel(func(j *job) bool { return j.kind == kindAttach && j.volume == v.ID })
	wasReady := v.IOReady
	v.IOReady = wasReady && c.rules.ReadyWhileDetaching
	c.putVolume(v)
	c.start(job{kind: kindDetach, volume: v.ID, linode: v.Linode, errored: r.Effect.Errored, ends: func(v volume, failed bool) {
		if failed {
			v.IOReady = wasReady
			c.putVolume(v)
			return
		}
		c.free(v)
	}}, c.dice.Lasting(kindDetach, v.Label, c.lasts.Detach, r.Effect))
	return ok(struct{}{})
}

// free takes a volume from its Linode.
func (c *Cloud) free(v volume) {
	c.unplug(v, c.now.linodes[v.Linode], "detached")
	v.Linode, v.IOReady, v.Persists, v.DeviceGiB = 0, false, false, 0
	c.putVolume(v)
}
