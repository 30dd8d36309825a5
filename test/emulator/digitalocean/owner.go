package digitalocean

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/rest"
)

// This file is what only the owner of the emulated account can do; no API call counts or checks it.

// Arm lets something go wrong from now on.
func (c *Cloud) Arm(fault Fault) *faults.Armed { return c.server.Faults.Arm(fault) }

// Disarm removes all faults.
func (c *Cloud) Disarm() { c.server.Faults.Disarm() }

// SetDurations says how long the operations take that begin from now on.
func (c *Cloud) SetDurations(d Durations) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lasts = d
}

// SetRules changes what the account enforces.
func (c *Cloud) SetRules(change func(*Rules)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.rules)
}

// SetLimits replaces the rate limits and forgets what was counted; none means no limit.
func (c *Cloud) SetLimits(all ...rest.Limit) { c.server.SetLimits(all...) }

// Volumes returns all volumes, the oldest first.
func (c *Cloud) Volumes() []Volume {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Volume
	for _, v := range c.now.volumeList(func(volume) bool { return true }) {
		v.Tags = slices.Clone(v.Tags)
		all = append(all, v.Volume)
	}
	return all
}

// Volume returns the volume with an id.
func (c *Cloud) Volume(id string) (Volume, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, found := c.now.volumes[id]
	v.Tags = slices.Clone(v.Tags)
	return v.Volume, found
}

// Snapshots returns all snapshots, the oldest first.
func (c *Cloud) Snapshots() []Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Snapshot
	for _, s := range c.now.snapshotList(func(snapshot) bool { return true }) {
		s.Tags = slices.Clone(s.Tags)
		all = append(all, s.Snapshot)
	}
	return all
}

// AddVolume adds a free volume as if somebody else had made it, and returns its id.
func (c *Cloud) AddVolume(v Volume) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.ID = cmp.Or(v.ID, c.newUUID("volume"))
	v.Region = cmp.Or(v.Region, c.opts.Region)
	v.DropletID = 0
	if _, exists := c.now.volumes[v.ID]; exists {
		return "", fmt.Errorf("volume %s exists", v.ID)
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

// Hold marks a volume as in use on its machine until release is called: a detach meanwhile is a
// violation. It is for tests without real devices; those notice a mount by themselves.
func (c *Cloud) Hold(id string) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[id]++
	released := false
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !released {
			released = true
			c.held[id]--
		}
	}
}

// Running returns how many actions have not ended.
func (c *Cloud) Running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.running)
}
