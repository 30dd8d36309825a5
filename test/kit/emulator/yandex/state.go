package yandex

import (
	"maps"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/history"
)

// disk, snapshot, Instance and operation are rows of the folder. Rows are replaced, never changed in place,
// so that an older view can keep them.
type disk struct {
	Disk
	number int    // order of creation
	file   string // the device name under which the data lies
}

type snapshot struct {
	Snapshot
	number int
}

type operation struct {
	id, description    string
	number             int
	disk, snap, onto   string // what it is about: a disk, a snapshot, an instance
	created, modified  time.Time
	done               bool
	moves              bool // it attaches or detaches a disk
	failure            *spb.Status
	metadata, response *anypb.Any
}

// How disks and snapshots stand.
const (
	statusCreating = "CREATING"
	statusReady    = "READY"
	statusError    = "ERROR"
	statusDeleting = "DELETING"
)

// state is all that the API can show.
type state struct {
	disks      map[string]disk
	snapshots  map[string]snapshot
	instances  map[string]Instance
	operations map[string]operation
}

func newState() state {
	return state{
		disks: map[string]disk{}, snapshots: map[string]snapshot{}, instances: map[string]Instance{},
		operations: map[string]operation{},
	}
}

// diskList returns the disks that keep says yes to, the oldest first.
func (s *state) diskList(keep func(disk) bool) []disk {
	return account.Sorted(s.disks, keep, func(a, b disk) int { return a.number - b.number })
}

func (s *state) snapshotList(keep func(snapshot) bool) []snapshot {
	return account.Sorted(s.snapshots, keep, func(a, b snapshot) int { return a.number - b.number })
}

// operationList returns the operations that keep says yes to, the newest first.
func (s *state) operationList(keep func(operation) bool) []operation {
	return account.Sorted(s.operations, keep, func(a, b operation) int { return b.number - a.number })
}

// attachedTo returns the disks of an instance, the one that it boots from too.
func (s *state) attachedTo(instance string) []disk {
	return s.diskList(func(d disk) bool { return d.Instance == instance })
}

func diskRows(s *state) map[string]disk           { return s.disks }
func snapshotRows(s *state) map[string]snapshot   { return s.snapshots }
func instanceRows(s *state) map[string]Instance   { return s.instances }
func operationRows(s *state) map[string]operation { return s.operations }

func (c *Cloud) putDisk(d disk) { history.Put(&c.past, c.clock.Now(), &c.now, diskRows, d.ID, d) }

func (c *Cloud) putSnapshot(s snapshot) {
	history.Put(&c.past, c.clock.Now(), &c.now, snapshotRows, s.ID, s)
}

func (c *Cloud) putInstance(i Instance) {
	history.Put(&c.past, c.clock.Now(), &c.now, instanceRows, i.ID, i)
}

func (c *Cloud) removeInstance(id string) {
	history.Remove(&c.past, c.clock.Now(), &c.now, instanceRows, id)
}

func (c *Cloud) removeDisk(id string) {
	history.Remove(&c.past, c.clock.Now(), &c.now, diskRows, id)
}

func (c *Cloud) removeSnapshot(id string) {
	history.Remove(&c.past, c.clock.Now(), &c.now, snapshotRows, id)
}

func (c *Cloud) putOperation(o operation) {
	history.Put(&c.past, c.clock.Now(), &c.now, operationRows, o.id, o)
}

// changeDisk replaces a disk's row, if there still is one.
func (c *Cloud) changeDisk(id string, change func(*disk)) disk {
	d, found := c.now.disks[id]
	if found {
		change(&d)
		c.putDisk(d)
	}
	return d
}

func (c *Cloud) changeSnapshot(id string, change func(*snapshot)) snapshot {
	s, found := c.now.snapshots[id]
	if found {
		change(&s)
		c.putSnapshot(s)
	}
	return s
}

// view returns the state that a call sees: the present one, or an older one when a fault says so.
func (c *Cloud) view(e effect) *state {
	if !history.IsStale(e) {
		return &c.now
	}
	past := &state{
		disks: maps.Clone(c.now.disks), snapshots: maps.Clone(c.now.snapshots), instances: maps.Clone(c.now.instances),
		operations: maps.Clone(c.now.operations),
	}
	c.past.Rewind(past, c.clock.Now(), e)
	return past
}
