package digitalocean

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// This file is what only the owner of the emulated account can do; no API call counts or checks it.

// Volumes returns all volumes, the oldest first.
func (c *Cloud) Volumes() []Volume {
	c.mu.Lock()
	defer c.mu.Unlock()
	return account.Shown(c.now.volumeList(func(volume) bool { return true }), volume.shown)
}

// shown is a copy for the owner.
func (v volume) shown() Volume {
	v.Tags = slices.Clone(v.Tags)
	return v.Volume
}

// Volume returns the volume with an id.
func (c *Cloud) Volume(id string) (Volume, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, found := c.now.volumes[id]
	return v.shown(), found
}

// Snapshots returns all snapshots, the oldest first.
func (c *Cloud) Snapshots() []Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return account.Shown(c.now.snapshotList(func(snapshot) bool { return true }), snapshot.shown)
}

func (s snapshot) shown() Snapshot {
	s.Tags = slices.Clone(s.Tags)
	return s.Snapshot
}

// AddVolume adds a free volume as if somebody else had made it, and returns its id.
func (c *Cloud) AddVolume(v Volume) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.ID = cmp.Or(v.ID, c.dice.UUID("volume", v.Name))
	v.Region = cmp.Or(v.Region, c.opts.Region)
	v.DropletID = 0
	if _, exists := c.now.volumes[v.ID]; exists {
		return "", fmt.Errorf("volume %s exists", v.ID)
	}
	if !volumeName.MatchString(v.Name) {
		return "", fmt.Errorf("volume %q: %s", v.Name, badVolumeName.Message)
	}
	return v.ID, c.addVolume(volume{Volume: v})
}

// Attached changes what a volume's record says without an action, as a support engineer could; droplet
// 0 frees it. The machine is not touched.
func (c *Cloud) Attached(id string, droplet int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, found := c.now.volumes[id]; found {
		v.DropletID = droplet
		c.putVolume(v)
	}
}

// Running returns the actions that have not ended, the oldest first.
func (c *Cloud) Running() []Operation {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Operation
	for _, id := range slices.Sorted(maps.Keys(c.running)) {
		a := c.running[id]
		all = append(all, Operation{
			Kind: a.kind, Volume: a.volume, VolumeName: c.now.volumes[a.volume].Name, Droplet: a.droplet, Action: a.id,
			Accepted: c.clock.Wall(a.started), Status: a.status,
		})
	}
	return all
}

// AddSnapshot adds a snapshot as if somebody else had made it, and returns its id. It has no data.
func (c *Cloud) AddSnapshot(s Snapshot) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.ID = cmp.Or(s.ID, c.dice.UUID("snapshot", s.Name))
	s.Region = cmp.Or(s.Region, c.opts.Region)
	if _, exists := c.now.snapshots[s.ID]; exists {
		return "", fmt.Errorf("snapshot %s exists", s.ID)
	}
	s.Tags, s.Created = slices.Clone(s.Tags), c.clock.Now()
	c.numbers++
	c.putSnapshot(snapshot{Snapshot: s, number: c.numbers})
	return s.ID, nil
}

// SetContent writes a mark that stands for the volume's data: a snapshot keeps it and a volume made
// from the snapshot begins with it.
func (c *Cloud) SetContent(id, content string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, found := c.now.volumes[id]; found {
		v.Content = content
		c.now.volumes[id] = v // no change that an old answer could lack: the API does not show it
	}
}

// Tags returns the names of all tags that the account has, on something or not.
func (c *Cloud) Tags() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.now.tags))
}

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
		c.later.After(lag, func() {
			if still := c.now.volumes[v.ID]; still.DropletID == id {
				still.DropletID = 0
				c.putVolume(still)
			}
		})
	}
}

// Droplets returns the ids of the machines, the smallest first.
func (c *Cloud) Droplets() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.now.droplets))
}

// Stats are the counters of the API and how many actions ran at once on one droplet at most, since the start
// or the last reset.
func (c *Cloud) Stats() account.Stats[int] {
	return account.Stats[int]{Stats: c.Server.Stats(), MaxParallel: c.record.MaxParallel()}
}

// ResetStats forgets counters, operations, exchanges and violations. The account stays as it is.
func (c *Cloud) ResetStats() {
	c.Server.ResetStats()
	c.record.Reset()
}

// Operations returns the operations since the last reset, in the order in which they were accepted.
func (c *Cloud) Operations() []Operation { return c.record.Operations() }

// Violations returns what must not have happened since the last reset.
func (c *Cloud) Violations() []Violation { return c.record.Violations() }

// decide asks Options.Decide about a request.
func (c *Cloud) decide(r *request) effect {
	if c.opts.Decide == nil {
		return effect{}
	}
	var body struct{ Name, Type string }
	_ = json.Unmarshal(r.Body, &body) // what is no JSON has neither
	call := Call{Method: r.Method, Route: r.Route, Volume: body.Name}
	c.mu.Lock()
	if v, found := c.now.volumes[r.PathValue("volume_id")]; found {
		call.Volume, call.Action = v.Name, body.Type
	}
	c.mu.Unlock()
	return c.opts.Decide(call)
}

// control adds to the owner's side what only this cloud has.
func (c *Cloud) control(control account.Control) {
	account.Show(control, "stats", c.Stats)
	account.Show(control, "operations", c.Operations)
	account.Show(control, "violations", c.Violations)
	control.Do("POST reset", func([]byte, *http.Request) (any, error) { c.ResetStats(); return c.Stats(), nil })
	c.ServeSettings(control)
	account.Show(control, "volumes", c.Volumes)
	account.Show(control, "snapshots", c.Snapshots)
	account.Machines[int, Droplet]{
		ParseID: strconv.Atoi, List: c.Droplets, Add: c.AddDroplet, Remove: c.RemoveDroplet, Metadata: c.Metadata,
	}.Serve(control, "droplets")
}
