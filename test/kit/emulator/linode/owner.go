package linode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
func (c *Cloud) Volume(id int) (Volume, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, found := c.now.volumes[id]
	return v.shown(), found
}

// AddVolume adds a free and active volume as if somebody else had made it, and returns its id.
func (c *Cloud) AddVolume(v Volume) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.Region, v.SizeGiB = cmp.Or(v.Region, c.opts.Region), cmp.Or(v.SizeGiB, usualVolume)
	v.Linode, v.IOReady, v.Persists, v.DeviceGiB = 0, false, false, 0
	if _, exists := c.now.volumes[v.ID]; exists {
		return 0, fmt.Errorf("volume %d exists", v.ID)
	}
	if why := checkLabel(v.Label); why != nil {
		return 0, fmt.Errorf("label %q: %s", v.Label, why.reason)
	}
	added, err := c.addVolume(volume{Volume: v}, nil, 0)
	if err != nil {
		return 0, err
	}
	c.created(added, false)
	return added.ID, nil
}

// Rename gives a volume another label, as somebody else could. Its Linode sees that when the volume is
// attached again.
func (c *Cloud) Rename(id int, label string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, found := c.now.volumes[id]
	if !found {
		return fmt.Errorf("volume %d does not exist", id)
	}
	if why := c.mayName(label); why != nil {
		return fmt.Errorf("label %q: %s", label, why.reason)
	}
	v.Label = label
	c.putVolume(v)
	return nil
}

// Attached changes what a volume's record says without an operation, as a support engineer could; Linode
// 0 frees it. The machine is not touched.
func (c *Cloud) Attached(id, linode int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, found := c.now.volumes[id]; found {
		v.Linode, v.IOReady = linode, linode != 0
		c.putVolume(v)
	}
}

// SetStatus changes what a volume's status says, such as contact_support.
func (c *Cloud) SetStatus(id int, status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, found := c.now.volumes[id]; found {
		v.Status = status
		c.putVolume(v)
	}
}

// SetLocks says which locks a volume has, such as cannot_delete.
func (c *Cloud) SetLocks(id int, locks ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, found := c.now.volumes[id]; found {
		v.Locks = slices.Clone(locks)
		c.putVolume(v)
	}
}

// Running returns the operations that have not ended, the oldest first.
func (c *Cloud) Running() []Operation {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Operation
	for _, number := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[number]
		op := Operation{Kind: j.kind, Volume: j.volume, Label: c.now.volumes[j.volume].Label, Linode: j.linode, Status: started}
		c.record.Change(number, func(kept *Operation) { op.Accepted = kept.Accepted })
		all = append(all, op)
	}
	return all
}

// Finish ends all operations that are running, the oldest first, as if their time had passed.
func (c *Cloud) Finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(c.jobs)) {
		if j, running := c.jobs[number]; running {
			c.finish(j)
		}
	}
}

// SetContent writes a mark that stands for the volume's data: a clone begins with it.
func (c *Cloud) SetContent(id int, content string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, found := c.now.volumes[id]; found {
		v.Content = content
		c.now.volumes[id] = v // no change that an old answer could lack: the API does not show it
	}
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
		c.later.After(lag, func() {
			if still, found := c.now.volumes[v.ID]; found && still.Linode == id {
				still.Linode, still.IOReady, still.Persists, still.DeviceGiB = 0, false, false, 0
				c.putVolume(still)
			}
		})
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

// Stats are the counters of the API and how many attaches and detaches ran at once on one Linode at most, since the start
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
	var body struct{ Label string }
	_ = json.Unmarshal(r.Body, &body) // what is no JSON has none
	call := Call{Method: r.Method, Route: r.Route, Volume: body.Label}
	if action, is := strings.CutPrefix(r.Route, prefix+"/volumes/{volumeId}/"); is {
		call.Action = action
	} else if r.Route == prefix+"/volumes" && strings.Contains(r.Header.Get("X-Filter"), `"+or"`) {
		call.Action = "follow"
	}
	c.mu.Lock()
	if v, found := c.now.volumes[r.PathNumber("volumeId")]; found {
		call.Volume = v.Label
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
	control.Do("POST linodes/{linode}/reboot", func(_ []byte, r *http.Request) (any, error) {
		id, err := strconv.Atoi(r.PathValue("linode"))
		if err == nil {
			c.Reboot(id)
		}
		return c.Volumes(), err
	})
	account.Machines[int, Linode]{
		ParseID: strconv.Atoi, List: c.Linodes, Add: c.AddLinode, Remove: c.RemoveLinode, Metadata: c.Metadata,
	}.Serve(control, "linodes")
}
