package digitalocean

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// This file is the machines: how the API shows them, which volumes they take, and what each finds in its metadata service.

const (
	dropletSize   = "s-1vcpu-1gb"
	dropletMemory = 1024 // MB
	dropletDisk   = 25   // GiB
)

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
	d, found := view.droplets[r.PathNumber("droplet_id")]
	if !found {
		return refuse(notFound, r.ID)
	}
	return reply(http.StatusOK, map[string]any{"droplet": c.showDroplet(view, d)}, r.ID)
}

func (c *Cloud) listDroplets(r *request) answer {
	view := c.view(r.Effect)
	return page(r, "droplets", slices.Sorted(maps.Keys(view.droplets)), func(id int) map[string]any { return c.showDroplet(view, view.droplets[id]) })
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
	case len(c.attachedTo(&c.now, droplet)) >= cmp.Or(c.rules.VolumesPerDroplet, defaultVolumesPerDroplet):
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

// metadataRoutes serves what each droplet finds at 169.254.169.254, below a path of its own.
func (c *Cloud) metadataRoutes(mux *http.ServeMux) {
	serve := func(path string, show func(w http.ResponseWriter, d Droplet)) {
		mux.HandleFunc("GET /droplets/{droplet}/metadata"+path, func(w http.ResponseWriter, r *http.Request) {
			id, _ := strconv.Atoi(r.PathValue("droplet")) // 0 is no droplet
			c.mu.Lock()
			d, found := c.now.droplets[id]
			c.mu.Unlock()
			if !found {
				http.NotFound(w, r)
				return
			}
			show(w, d)
		})
	}
	text := func(get func(Droplet) string) func(http.ResponseWriter, Droplet) {
		return func(w http.ResponseWriter, d Droplet) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			fmt.Fprint(w, get(d))
		}
	}
	serve("/v1/id", text(func(d Droplet) string { return strconv.Itoa(d.ID) }))
	serve("/v1/region", text(func(d Droplet) string { return d.Region }))
}
