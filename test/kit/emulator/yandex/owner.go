package yandex

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rpc"
)

// This file is what only the owner of the emulated folder can do; no API call counts or checks it.

// SetRules changes what the folder enforces.
func (c *Cloud) SetRules(change func(*Rules)) {
	c.Settings.SetRules(func(r *Rules) {
		r.Codes = maps.Clone(r.Codes)
		change(r)
	})
}

// Disks returns all disks but those that instances boot from, the oldest first.
func (c *Cloud) Disks() []Disk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return account.Shown(c.now.diskList(func(d disk) bool { return !d.Boot }), disk.shown)
}

// shown is a copy for the owner.
func (d disk) shown() Disk {
	d.Labels = maps.Clone(d.Labels)
	return d.Disk
}

// Disk returns the disk with an id.
func (c *Cloud) Disk(id string) (Disk, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, found := c.now.disks[id]
	return d.shown(), found
}

// Snapshots returns all snapshots, the oldest first.
func (c *Cloud) Snapshots() []Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return account.Shown(c.now.snapshotList(func(snapshot) bool { return true }), snapshot.shown)
}

func (s snapshot) shown() Snapshot {
	s.Labels = maps.Clone(s.Labels)
	return s.Snapshot
}

// AddDisk adds a free disk that is ready, as if somebody else had made it, and returns its id.
func (c *Cloud) AddDisk(d Disk) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.Zone, d.Type = cmp.Or(d.Zone, c.opts.Zone), cmp.Or(d.Type, usualType)
	d.Size, d.BlockSize = cmp.Or(d.Size, gib), cmp.Or(d.BlockSize, usualBlock)
	d.ID = cmp.Or(d.ID, c.newID(zonePrefix(d.Zone), "disk", d.Name))
	d.Instance, d.Device, d.ReadOnly, d.Boot = "", "", false, false
	if _, exists := c.now.disks[d.ID]; exists {
		return "", fmt.Errorf("disk %s exists", d.ID)
	}
	if why := checkNaming(d.Name, d.Description, d.Labels); why != nil {
		return "", fmt.Errorf("disk %q: %s", d.Name, why.text)
	}
	status := cmp.Or(d.Status, statusReady)
	if err := c.addDisk(disk{Disk: d}); err != nil {
		return "", err
	}
	c.changeDisk(d.ID, func(now *disk) {
		if now.Status = status; !d.Created.IsZero() {
			now.Created = d.Created
		}
	})
	return d.ID, nil
}

// AddSnapshot adds a snapshot that is ready, as if somebody else had made it, and returns its id. It has no
// data.
func (c *Cloud) AddSnapshot(s Snapshot) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.ID = cmp.Or(s.ID, c.newID(snapshotPrefix, "snapshot", s.Name))
	s.DiskSize, s.Status = cmp.Or(s.DiskSize, gib), cmp.Or(s.Status, statusReady)
	if _, exists := c.now.snapshots[s.ID]; exists {
		return "", fmt.Errorf("snapshot %s exists", s.ID)
	}
	c.numbers++
	s.Created = c.clock.Now()
	c.putSnapshot(snapshot{Snapshot: s, number: c.numbers})
	return s.ID, nil
}

// ChangeDisk changes what a disk's record says without an operation, as a support engineer could. The machine
// is not touched.
func (c *Cloud) ChangeDisk(id string, change func(*Disk)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeDisk(id, func(d *disk) { change(&d.Disk) })
}

// Attached changes where a disk's record says that it is attached, under its id; an empty instance frees it.
func (c *Cloud) Attached(id, instance string) {
	c.ChangeDisk(id, func(d *Disk) {
		d.Instance, d.Device = instance, ""
		if instance != "" {
			d.Device = d.ID
		}
	})
}

// SetContent writes a mark that stands for the disk's data: a snapshot keeps it and a disk made from the
// snapshot begins with it.
func (c *Cloud) SetContent(id, content string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d, found := c.now.disks[id]; found {
		d.Content = content
		c.now.disks[id] = d // no change that an old answer could lack: the API does not show it
	}
}

// Running returns the operations that have not ended, the oldest first.
func (c *Cloud) Running() []Operation {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Operation
	for _, j := range c.running {
		c.record.Change(j.number, func(op *Operation) { all = append(all, *op) })
	}
	slices.SortFunc(all, func(a, b Operation) int { return a.Accepted.Compare(b.Accepted) })
	return all
}

// Instances returns the ids of the instances, in the order in which they were added.
func (c *Cloud) Instances() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	boots := c.now.diskList(func(d disk) bool { return d.Boot })
	ids := make([]string, 0, len(boots))
	for _, d := range boots {
		ids = append(ids, d.Instance)
	}
	return ids
}

// Instance returns the instance with an id.
func (c *Cloud) Instance(id string) (Instance, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := c.now.instances[id]
	return i, found
}

// AddInstance adds an instance, with the disk that it boots from, and returns its id.
func (c *Cloud) AddInstance(i Instance) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	const usualCores = 4
	number := c.dice.Next("instance")
	i.Name, i.Zone = cmp.Or(i.Name, fmt.Sprintf("node-%d", number)), cmp.Or(i.Zone, c.opts.Zone)
	i.ID = cmp.Or(i.ID, c.newID(zonePrefix(i.Zone), "instance", i.Name))
	i.Status, i.Cores = cmp.Or(i.Status, statusRunning), cmp.Or(i.Cores, usualCores)
	c.putInstance(i)
	const size = 20 * gib
	boot := disk{Disk: Disk{
		ID: c.newID(zonePrefix(i.Zone), "boot", i.Name), Zone: i.Zone, Type: "network-ssd", Size: size, BlockSize: usualBlock,
		Image: "fd8emulated00image00", Instance: i.ID, Boot: true, Status: statusReady, Created: c.clock.Now(),
	}}
	c.numbers++
	boot.number, boot.Device, boot.file = c.numbers, boot.ID, boot.ID
	c.putDisk(boot) // without data: nobody looks into it
	return i.ID
}

// SetStatus changes an instance's status, such as to STOPPED or STARTING.
func (c *Cloud) SetStatus(instance, status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, found := c.now.instances[instance]; found {
		i.Status = status
		c.putInstance(i)
	}
}

// RemoveInstance destroys an instance with the disk that it boots from. Its other disks are free when lag, in
// the folder's time, has passed.
func (c *Cloud) RemoveInstance(id string, lag time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, found := c.now.instances[id]; !found {
		return
	}
	c.removeInstance(id)
	for _, d := range c.now.attachedTo(id) {
		if d.Boot {
			c.removeDisk(d.ID)
			continue
		}
		c.later.After(lag, func() {
			if c.now.disks[d.ID].Instance == id {
				c.free(d.ID)
			}
		})
	}
}

// Stats are the counters of the API and how many operations ran at once at most: of an instance, and in the folder, by their ids, since the start
// or the last reset.
func (c *Cloud) Stats() account.Stats[string] {
	return account.Stats[string]{Stats: c.server.Stats(), MaxParallel: c.record.MaxParallel()}
}

// ResetStats forgets counters, operations, exchanges and violations. The account stays as it is.
func (c *Cloud) ResetStats() {
	c.server.ResetStats()
	c.record.Reset()
}

// Operations returns the operations since the last reset, in the order in which they were accepted.
func (c *Cloud) Operations() []Operation { return c.record.Operations() }

// Violations returns what must not have happened since the last reset.
func (c *Cloud) Violations() []Violation { return c.record.Violations() }

// diskSpec is a request to attach a disk.
type diskSpec interface {
	GetAttachedDiskSpec() *compute.AttachedDiskSpec
}

// decide asks Options.Decide about a call.
func (c *Cloud) decide(call *rpc.Call) effect {
	if c.opts.Decide == nil {
		return effect{}
	}
	about := Call{Route: call.Route, Write: kindOf(call.Route) == rpc.Write}
	if named, has := call.Message.(interface{ GetName() string }); has {
		about.Disk = named.GetName()
	}
	id := ""
	if with, has := call.Message.(interface{ GetDiskId() string }); has {
		id = with.GetDiskId()
	} else if with, has := call.Message.(diskSpec); has {
		id = with.GetAttachedDiskSpec().GetDiskId()
	}
	c.mu.Lock()
	if d, found := c.now.disks[id]; found && about.Disk == "" {
		about.Disk = d.Name
	}
	c.mu.Unlock()
	return c.opts.Decide(about)
}

// control adds to the owner's side what only this cloud has.
func (c *Cloud) control(control account.Control) {
	account.Show(control, "stats", c.Stats)
	account.Show(control, "operations", c.Operations)
	account.Show(control, "violations", c.Violations)
	control.Do("POST reset", func([]byte, *http.Request) (any, error) { c.ResetStats(); return c.Stats(), nil })
	c.ServeSettings(control)
	account.Show(control, "volumes", c.Disks)
	account.Show(control, "disks", c.Disks)
	account.Show(control, "snapshots", c.Snapshots)
	control.Do("POST keys", func([]byte, *http.Request) (any, error) {
		key, err := c.NewKey()
		return rawJSON(key), err
	})
	control.Do("POST placement_groups", func(body []byte, _ *http.Request) (any, error) {
		var g PlacementGroup
		if err := account.ReadJSON(body, &g); err != nil {
			return nil, err
		}
		return map[string]string{"id": c.AddPlacementGroup(g)}, nil
	})
	control.Do("POST instances/{instance}/relocate", c.relocateInstance)
	account.Machines[string, Instance]{
		ParseID: func(id string) (string, error) { return id, nil },
		List:    c.Instances, Add: c.AddInstance, Remove: c.RemoveInstance, Metadata: c.Metadata,
	}.Serve(control, "instances")
}

type rawJSON []byte

// MarshalJSON is the text itself.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }
