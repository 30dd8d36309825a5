package linode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file is the machines: how the API shows them, which volumes they take, and what each finds in its metadata service.

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

func (c *Cloud) getLinode(r *request) answer {
	l, found := c.view(r.Effect).linodes[r.PathNumber("linodeId")]
	if !found {
		return c.refuse(notFound)
	}
	return ok(showLinode(l))
}

// of answers with what belongs to the Linode of a request.
func (c *Cloud) of(r *request, list func(s *state, l Linode) []any) answer {
	view := c.view(r.Effect)
	l, found := view.linodes[r.PathNumber("linodeId")]
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

// attachRequest has all fields that clients send.
type attachRequest struct {
	LinodeID int   `json:"linode_id"`
	Persists *bool `json:"persist_across_boots"`
}

func (a attachRequest) persists() bool { return a.Persists == nil || *a.Persists }

// attachVolume claims the Linode at once; the device is there later.
func (c *Cloud) attachVolume(r *request, v volume) answer {
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
func (c *Cloud) detachVolume(r *request, v volume) answer {
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

// plug gives a volume to its Linode. Only now does the Linode see another size or label.
func (c *Cloud) plug(v volume, l Linode) volume {
	v.DeviceGiB = v.SizeGiB
	if v.file != v.Label {
		c.trouble(v, c.disks.Rename(disk(v), device(v.Label)))
		v.file = v.Label
	}
	c.trouble(v, c.disks.Grow(disk(v)))
	if l.DeviceDir != "" {
		c.trouble(v, c.disks.Attach(disk(v), l.DeviceDir))
	}
	return v
}

// unplug takes a volume away from its Linode because it is detached or deleted, as a cloud does: whether it is in use or not.
// That it was in use is what a test must see.
func (c *Cloud) unplug(v volume, l Linode, done string) {
	if c.Held(v.ID) {
		c.violation(done+" while in use", v, l.ID)
	}
	inUse, err := c.disks.Detach(disk(v))
	if inUse {
		c.violation(done+" while its device was mounted or open", v, l.ID)
	}
	c.trouble(v, err)
}

// metadataRoutes serves what each Linode finds at 169.254.169.254, below a path of its own. Where the
// region has no metadata service, nothing is found.
func (c *Cloud) metadataRoutes(mux *http.ServeMux) {
	serve := func(pattern string, show func(w http.ResponseWriter, r *http.Request, l Linode)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /linodes/{linode}"+path, func(w http.ResponseWriter, r *http.Request) {
			id, _ := strconv.Atoi(r.PathValue("linode")) // 0 is no Linode
			c.mu.Lock()
			l, found := c.now.linodes[id]
			found = found && slices.Contains(c.opts.Regions[l.Region].Capabilities, MetadataService)
			c.mu.Unlock()
			if !found {
				http.NotFound(w, r)
				return
			}
			show(w, r, l)
		})
	}
	serve("PUT /v1/token", c.metadataToken)
	serve("GET /v1/instance", func(w http.ResponseWriter, r *http.Request, l Linode) {
		if !c.knowsToken(r.Header.Get("Metadata-Token"), l.ID) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if !wantsJSON(r) {
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprintf(w, "id: %d\nlabel: %s\nregion: %s\ntype: %s\nspecs.memory: %d\n", l.ID, l.Label, l.Region, "g6-standard-4", l.MemoryMB)
			return
		}
		writeCompact(w, map[string]any{
			"id": l.ID, "label": l.Label, "region": l.Region, "type": "g6-standard-4", "host_uuid": hostUUID(l),
			"tags": append([]string{}, l.Tags...), "account_euuid": "4f1b2f3a-0c1d-4e5f-8a9b-0c1d2e3f4a5b",
			"specs":   map[string]int{"vcpus": 4, "memory": l.MemoryMB, "disk": diskMB, "transfer": 4000, "gpus": 0},
			"backups": map[string]any{"enabled": false, "status": nil}, "image": map[string]string{"id": "linode/ubuntu24.04", "label": "Ubuntu 24.04 LTS"},
		})
	})
}

// metadataToken gives a token that is good for as long as the header says.
func (c *Cloud) metadataToken(w http.ResponseWriter, r *http.Request, l Linode) {
	seconds, err := strconv.Atoi(r.Header.Get("Metadata-Token-Expiry-Seconds"))
	const longest = 24 * 60 * 60
	if err != nil || seconds < 1 || seconds > longest {
		http.Error(w, "Metadata-Token-Expiry-Seconds must be 1-86400", http.StatusBadRequest)
		return
	}
	ends := c.clock.Now().Add(time.Duration(seconds) * time.Second)
	token := fmt.Sprintf("%d.%d", l.ID, ends.UnixNano())
	if wantsJSON(r) {
		writeCompact(w, []string{token})
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintln(w, token)
}

// knowsToken: a token names its Linode and its end.
func (c *Cloud) knowsToken(token string, linode int) bool {
	owner, end, _ := strings.Cut(token, ".")
	nanoseconds, err := strconv.ParseInt(end, 10, 64)
	return err == nil && owner == strconv.Itoa(linode) && c.clock.Now().Before(time.Unix(0, nanoseconds))
}

func wantsJSON(r *http.Request) bool { return r.Header.Get("Accept") == "application/json" }

func writeCompact(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that went away needs no answer
}
