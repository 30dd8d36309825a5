package linode

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"
)

const (
	statusRunning = "running"
	leastDevices  = 8
	mostDevices   = 64
	usualDisks    = 2
	usualMemory   = 8 << 10
)

// disks is how many places the Linode's own disks take.
func (l Linode) disks() int {
	if l.Disks == 0 {
		return usualDisks
	}
	return max(0, l.Disks)
}

// deviceLimit is how many disks and volumes the Linode can have: one for each GiB of memory.
func (l Linode) deviceLimit() int {
	return min(mostDevices, max(leastDevices, l.MemoryMB/1024))
}

// AddLinode adds a machine and returns its id. What is not said gets a usual value.
func (c *Cloud) AddLinode(l Linode) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	const first = 20_001
	if l.ID == 0 {
		l.ID = first - 1 + c.dice.Next("linode")
	}
	l.Label = cmp.Or(l.Label, "linode-"+strconv.Itoa(l.ID))
	l.Region, l.MemoryMB = cmp.Or(l.Region, c.opts.Region), cmp.Or(l.MemoryMB, usualMemory)
	l.Status, l.Tags = cmp.Or(l.Status, statusRunning), slices.Clone(l.Tags)
	c.putLinode(l)
	return l.ID
}

// RemoveLinode destroys a machine. Its volumes become free, but their records go on naming the Linode for
// as long as lag.
func (c *Cloud) RemoveLinode(id int, lag time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLinode(id)
	c.cancel(func(j *job) bool { return j.linode == id })
	for _, v := range c.now.attachedTo(id) {
		// Who used the volume there is gone too, so this is no violation.
		_, err := c.disks.Detach(disk(v))
		c.trouble(v, err)
		free := func() {
			if still, found := c.now.volumes[v.ID]; found && still.Linode == id {
				still.Linode, still.IOReady, still.Persists, still.DeviceGiB = 0, false, false, 0
				c.putVolume(still)
			}
		}
		if lag == 0 {
			free()
		} else {
			c.later.After(lag, free)
		}
	}
}

// Reboot boots a Linode again: it loses the volumes whose attachment does not persist, and sees the
// others in their present size. Whoever used a volume there is gone with the boot, so this is no violation.
func (c *Cloud) Reboot(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel(func(j *job) bool { return j.linode == id })
	for _, v := range c.now.attachedTo(id) {
		_, err := c.disks.Detach(disk(v))
		c.trouble(v, err)
		if v.Persists {
			v = c.plug(v, c.now.linodes[id])
			v.IOReady = true
		} else {
			v.Linode, v.IOReady, v.DeviceGiB = 0, false, 0
		}
		c.putVolume(v)
	}
}

// Linodes returns the ids of the machines, the smallest first.
func (c *Cloud) Linodes() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.now.linodes))
}

func (c *Cloud) getLinode(r *request) answer {
	l, found := c.view(r.Effect).linodes[pathNumber(r, "linodeId")]
	if !found {
		return c.refuse(notFound)
	}
	return ok(showLinode(l))
}

// of answers with what belongs to the Linode of a request.
func (c *Cloud) of(r *request, list func(s *state, l Linode) []any) answer {
	view := c.view(r.Effect)
	l, found := view.linodes[pathNumber(r, "linodeId")]
	if !found {
		return c.refuse(notFound)
	}
	return page(c, r, list(view, l), func(item any) any { return item })
}

func (c *Cloud) listDisks(r *request) answer {
	return c.of(r, func(_ *state, l Linode) (all []any) {
		for i := range l.disks() {
			disk := map[string]any{
				"id": l.ID*100 + i, "label": "Ubuntu 24.04 LTS Disk", "status": "ready", "size": diskMB - 512,
				"filesystem": "ext4", "disk_encryption": "enabled", "created": long, "updated": long,
			}
			if i == 1 {
				disk["label"], disk["size"], disk["filesystem"] = "512 MB Swap Image", 512, "swap"
			}
			all = append(all, disk)
		}
		return all
	})
}

func (c *Cloud) listLinodeVolumes(r *request) answer {
	return c.of(r, func(s *state, l Linode) (all []any) {
		for _, v := range s.attachedTo(l.ID) {
			all = append(all, c.showVolume(r, s, v))
		}
		return all
	})
}

func (c *Cloud) listRegions(r *request) answer {
	return page(c, r, slices.Sorted(maps.Keys(c.opts.Regions)), c.showRegion)
}
