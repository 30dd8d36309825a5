package digitalocean

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	dropletSize   = "s-1vcpu-1gb"
	dropletMemory = 1024 // MB
	dropletDisk   = 25   // GiB
)

// AddDroplet adds a machine and returns its id. What is not said gets a usual value.
func (c *Cloud) AddDroplet(d Droplet) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	const first = 3_164_001
	if d.ID == 0 {
		d.ID = first - 1 + c.dice.Next("droplet")
	}
	d.Name = cmp.Or(d.Name, "droplet-"+strconv.Itoa(d.ID))
	d.Region = cmp.Or(d.Region, c.opts.Region)
	d.Tags = slices.Clone(d.Tags)
	c.now.droplets[d.ID] = d
	return d.ID
}

// RemoveDroplet destroys a machine. Its running action fails; its volumes become free, but their
// records go on naming the droplet for as long as lag.
func (c *Cloud) RemoveDroplet(id int, lag time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.now.droplets, id)
	for _, running := range c.running {
		if running.droplet == id {
			running.errored = true
			c.finish(running)
		}
	}
	for _, v := range c.attachedTo(&c.now, id) {
		// Who used the volume there is gone too, so this is no violation.
		_, err := c.disks.Detach(disk(v))
		c.trouble(v, err)
		free := func() {
			if still := c.now.volumes[v.ID]; still.DropletID == id {
				still.DropletID = 0
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

// Droplets returns the ids of the machines, the smallest first.
func (c *Cloud) Droplets() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.now.droplets))
}

func (c *Cloud) attachedTo(s *state, droplet int) []volume {
	return s.volumeList(func(v volume) bool { return v.DropletID == droplet })
}

func (c *Cloud) showDroplet(s *state, d Droplet) map[string]any {
	volumes := []string{}
	for _, v := range c.attachedTo(s, d.ID) {
		volumes = append(volumes, v.ID)
	}
	tags := c.shownTags(d.Tags)
	if tags == nil { // the description has no null here
		tags = []string{}
	}
	size := map[string]any{
		"slug": dropletSize, "memory": dropletMemory, "vcpus": 1, "disk": dropletDisk, "transfer": 1.0, "price_monthly": 6.0,
		"price_hourly": 0.00893, "regions": []string{d.Region}, "available": true, "description": "Basic",
	}
	return map[string]any{
		"id": d.ID, "name": d.Name, "memory": dropletMemory, "vcpus": 1, "disk": dropletDisk, "locked": false,
		"status": "active", "kernel": nil, "created_at": "2024-05-02T07:00:00Z", "features": []string{"private_networking"},
		"backup_ids": []int{}, "next_backup_window": map[string]any{"start": "2024-05-05T04:00:00Z", "end": "2024-05-05T08:00:00Z"}, "snapshot_ids": []int{}, "image": map[string]any{
			"id": 7555620, "name": "24.04 (LTS) x64", "type": "base", "distribution": "Ubuntu", "slug": "ubuntu-24-04-x64",
			"public": true, "regions": []string{d.Region}, "created_at": "2024-04-25T00:00:00Z", "min_disk_size": 10,
			"size_gigabytes": 2.34, "tags": []string{}, "status": "available",
		},
		"volume_ids": volumes, "size": size, "size_slug": dropletSize, "networks": map[string]any{"v4": []any{}, "v6": []any{}},
		"region": c.region(d.Region), "tags": tags,
	}
}

func (c *Cloud) getDroplet(r *request) answer {
	view := c.view(r.Effect)
	d, found := view.droplets[pathNumber(r, "droplet_id")]
	if !found {
		return refuse(notFound, r.ID)
	}
	return reply(http.StatusOK, map[string]any{"droplet": c.showDroplet(view, d)}, r.ID)
}

func (c *Cloud) listDroplets(r *request) answer {
	view := c.view(r.Effect)
	return page(r, "droplets", slices.Sorted(maps.Keys(view.droplets)), func(id int) map[string]any { return c.showDroplet(view, view.droplets[id]) })
}

func (c *Cloud) listRegions(r *request) answer {
	return page(r, "regions", slices.Sorted(maps.Keys(c.opts.Regions)), c.region)
}

// getAccount shows the account as recordings of 2022 have it. Its volume_limit is 0 where the rules have none, as the vendor's driver
// reads it.
func (c *Cloud) getAccount(r *request) answer {
	const uuid = "00000000-0000-4000-8000-00000000e0e0"
	return reply(http.StatusOK, map[string]any{"account": map[string]any{
		"droplet_limit": 25, "floating_ip_limit": 3, "reserved_ip_limit": 3, "volume_limit": c.rules.VolumeLimit,
		"email": "owner@example.com", "uuid": uuid, "email_verified": true, "status": "active", "status_message": "",
		"team": map[string]any{"uuid": uuid, "name": "My Team"},
	}}, r.ID)
}
