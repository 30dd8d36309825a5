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
)

// plan is a type of Linode: its memory in MB, its disk in MB, its processors.
type plan struct {
	id, label, class    string
	memory, disk, vcpus int
}

// plans are the real shared plans, and a large one.
var plans = []plan{
	{"g6-nanode-1", "Nanode 1GB", "nanode", 1 << 10, 25 << 10, 1},
	{"g6-standard-1", "Linode 2GB", "standard", 2 << 10, 50 << 10, 1},
	{"g6-standard-2", "Linode 4GB", "standard", 4 << 10, 80 << 10, 2},
	{"g6-standard-4", "Linode 8GB", "standard", 8 << 10, 160 << 10, 4},
	{"g6-standard-6", "Linode 16GB", "standard", 16 << 10, 320 << 10, 6},
	{"g6-standard-8", "Linode 32GB", "standard", 32 << 10, 640 << 10, 8},
	{"g6-standard-16", "Linode 64GB", "standard", 64 << 10, 1280 << 10, 16},
	{"g6-standard-20", "Linode 96GB", "standard", 96 << 10, 1920 << 10, 20},
}

func (l Linode) plan() plan {
	at := slices.IndexFunc(plans, func(p plan) bool { return p.id == l.Type })
	if at < 0 {
		at = 0 // a type that only a test knows
	}
	p := plans[at]
	p.memory = cmp.Or(l.MemoryMB, p.memory)
	return p
}

// disks is how many places the Linode's own disks take.
func (l Linode) disks() int {
	if l.Disks == 0 {
		return usualDisks
	}
	return max(0, l.Disks)
}

// deviceLimit is how many disks and volumes the Linode can have: one for each GiB of memory.
func (l Linode) deviceLimit() int {
	return min(mostDevices, max(leastDevices, l.plan().memory/1024))
}

func (l Linode) configIDs() []int {
	var ids []int
	for i := range max(1, l.Configs) {
		ids = append(ids, l.ID*10+i)
	}
	return ids
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
	l.Region, l.Type = cmp.Or(l.Region, c.opts.Region), cmp.Or(l.Type, DefaultType)
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

// SetLinodeStatus says what a Linode does, in the API's words, such as running, offline or rebooting.
func (c *Cloud) SetLinodeStatus(id int, status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, found := c.now.linodes[id]; found {
		l.Status = status
		c.putLinode(l)
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

func (c *Cloud) listLinodes(r *request) answer {
	keep, by, field := filter(r, linodeFields)
	if field != "" {
		return c.refuseFilter(field)
	}
	view := c.view(r.Effect)
	var found []Linode
	for _, id := range slices.Sorted(maps.Keys(view.linodes)) {
		if l := view.linodes[id]; keep(linodeValues(l)) {
			found = append(found, l)
		}
	}
	return page(c, r, sorted(by, found, linodeValues), showLinode)
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
				"id": l.ID*100 + i, "label": "Ubuntu 24.04 LTS Disk", "status": "ready", "size": l.plan().disk - 512,
				"filesystem": "ext4", "created": long, "updated": long,
			}
			if i == 1 {
				disk["label"], disk["size"], disk["filesystem"] = "512 MB Swap Image", 512, "swap"
			}
			all = append(all, disk)
		}
		return all
	})
}

func (c *Cloud) listConfigs(r *request) answer {
	return c.of(r, func(_ *state, l Linode) (all []any) {
		for i, id := range l.configIDs() {
			all = append(all, map[string]any{
				"id": id, "label": "Profile " + strconv.Itoa(i+1), "comments": "", "kernel": "linode/grub2",
				"memory_limit": 0, "root_device": "/dev/sda", "run_level": "default", "virt_mode": "paravirt",
				"devices": map[string]any{}, "helpers": map[string]any{"distro": true},
			})
		}
		return all
	})
}

func (c *Cloud) listLinodeVolumes(r *request) answer {
	return c.of(r, func(s *state, l Linode) (all []any) {
		for _, v := range s.attachedTo(l.ID) {
			all = append(all, c.showVolume(s, v))
		}
		return all
	})
}

func (c *Cloud) listTypes(r *request) answer { return page(c, r, plans, showPlan) }

func (c *Cloud) getType(r *request) answer {
	for _, p := range plans {
		if p.id == r.PathValue("typeId") {
			return ok(showPlan(p))
		}
	}
	return c.refuse(notFound)
}

func (c *Cloud) listRegions(r *request) answer {
	return page(c, r, slices.Sorted(maps.Keys(c.opts.Regions)), c.showRegion)
}

func (c *Cloud) getRegion(r *request) answer {
	id := r.PathValue("regionId")
	if _, found := c.opts.Regions[id]; !found {
		return c.refuse(notFound)
	}
	return ok(c.showRegion(id))
}
