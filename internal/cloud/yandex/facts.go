package yandex

import (
	"context"
	"maps"
	"sync"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// A fact is what this process has seen of a disk. Type and block size never change; the size only grows,
// so it is a lower bound; machine and wish may be old and only say where a look is worth its request.
type fact struct {
	diskType    string
	size, block cloud.Bytes
	machine     string
	wish        bool
	// certain is the size that it had for sure: at the end of an operation of this process.
	certain cloud.Bytes

	// made is when this process has asked for the disk first; zero: it did not. Somebody else may have done so before.
	made time.Time
	// settled is when the disk's state was last known for certain: right after a change, or by a look at this disk
	// alone. ready is when it was so for the first time. Zero: never.
	settled, ready time.Time
	// open: an attach or detach was sent, and nobody has seen its end. It is an operation of the machine onto.
	open bool
	onto string
	// created is what the cloud says about when it made the disk.
	created time.Time
	// deleting is when this process has sent the delete that the cloud has taken on, and the disk was still there;
	// zero: it has not.
	deleting time.Time
}

// facts are what this process remembers. Nothing here decides anything: without it there are more requests.
type facts struct {
	mu    sync.Mutex
	disks map[cloud.VolumeID]fact
}

func (f fact) seen(d *compute.Disk) fact {
	f.diskType, f.size, f.block = d.GetTypeId(), sizeOf(d), cloud.Bytes(d.GetBlockSize())
	f.created, f.machine = d.GetCreatedAt().AsTime(), ""
	if machines := d.GetInstanceIds(); len(machines) > 0 {
		f.machine = machines[0]
	}
	_, f.wish = growthOf(d.GetLabels())
	return f
}

// knownAt notes that the state was known for certain at a moment.
func (f fact) knownAt(at time.Time) fact {
	f.settled, f.open = at, false
	if f.ready.IsZero() {
		f.ready = f.settled
	}
	return f
}

// saw takes in the state of a disk. A fresh one was asked for alone; a list may lag behind, so it does
// not unsay what is known already.
func (k *facts) saw(d *compute.Disk, fresh bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.disks == nil {
		k.disks = map[cloud.VolumeID]fact{}
	}
	old, known := k.disks[idOf(d)]
	f := old.seen(d)
	if known && !fresh {
		f.size, f.machine, f.wish = max(f.size, old.size), old.machine, f.wish || old.wish
	}
	if fresh && !f.open {
		f = f.knownAt(time.Now())
	}
	k.disks[idOf(d)] = f
}

// unsettle is called when a change of a disk is about to be sent. It returns when the state before it was known for
// certain; from now on it is not, until somebody has seen the end of the change.
func (k *facts) unsettle(id cloud.VolumeID, machine string) (settled time.Time) {
	k.change(id, func(f *fact) { settled, f.settled, f.open, f.onto = f.settled, time.Time{}, true, machine })
	return settled
}

// openOn returns the machine on which a change of a disk may be under way, or nothing.
func (k *facts) openOn(id cloud.VolumeID) string {
	if f, _ := k.of(id); f.open {
		return f.onto
	}
	return ""
}

// joined is called when everything has ended that was under way with a disk: the next look shows a state that is
// certain.
func (k *facts) joined(id cloud.VolumeID) {
	k.change(id, func(f *fact) { f.open = false })
}

// settle notes that the state of a disk was known for certain at a moment.
func (k *facts) settle(id cloud.VolumeID, at time.Time) {
	k.change(id, func(f *fact) { *f = f.knownAt(at) })
}

// making notes that this process has asked for a disk at a moment, or with the zero one before.
func (k *facts) making(id cloud.VolumeID, asked time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if asked.IsZero() || !k.disks[id].made.IsZero() {
		return
	}
	if k.disks == nil {
		k.disks = map[cloud.VolumeID]fact{}
	}
	f := k.disks[id]
	f.made = asked
	k.disks[id] = f
}

// sawAll takes in a complete list, and forgets what is on it no more.
func (k *facts) sawAll(all []*compute.Disk) {
	listed := make(map[cloud.VolumeID]bool, len(all))
	for _, d := range all {
		k.saw(d, false)
		listed[idOf(d)] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.disks {
		if !listed[id] {
			delete(k.disks, id)
		}
	}
}

func (k *facts) of(id cloud.VolumeID) (fact, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, known := k.disks[id]
	return f, known
}

// change corrects what is known of a disk, if anything is.
func (k *facts) change(id cloud.VolumeID, edit func(*fact)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f, known := k.disks[id]; known {
		edit(&f)
		k.disks[id] = f
	}
}

func (k *facts) forget(id cloud.VolumeID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.disks, id)
}

// know returns what there is to know of a disk, with a shared read where this process has never seen
// it. fault.NotFound when there is no such disk.
func (c *Cloud) know(ctx context.Context, id cloud.VolumeID) (fact, error) {
	if f, known := c.known.of(id); known {
		return f, nil
	}
	d, err := c.states.Get(ctx, id)
	if err != nil {
		return fact{}, err
	}
	return fact{}.seen(d), nil
}

// all returns what is known of all disks.
func (k *facts) all() map[cloud.VolumeID]fact {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.disks)
}

// A listing is a list of the folder's disks beside what was known before it was asked for. It may come from a copy of
// the cloud's records that lags behind, and a disk that is free on it may have been attached since.
type listing struct {
	disks map[cloud.VolumeID]*compute.Disk
	known map[cloud.VolumeID]fact
	// newest is when the cloud made the youngest of the disks: the list is not older than that.
	newest time.Time
	// younger is a moment by this program's clock that the list is not older than: it shows a disk that was made
	// then, or lacks one that this process began to delete then. Zero: it shows nothing of that kind.
	younger time.Time
}

func newListing(all []*compute.Disk, known map[cloud.VolumeID]fact, by *clock) listing {
	l := listing{disks: make(map[cloud.VolumeID]*compute.Disk, len(all)), known: known}
	for _, d := range all {
		l.disks[idOf(d)] = d
		made := d.GetCreatedAt().AsTime()
		if made.After(l.newest) {
			l.newest = made
		}
		if at := by.moment(made, known[idOf(d)].made); at.After(l.younger) {
			l.younger = at
		}
	}
	for id, f := range known {
		if f.deleting.After(l.younger) && l.lacks(id) {
			l.younger = f.deleting
		}
	}
	return l
}

// lacks reports whether a disk was there and is no more: the list is from after its creation, and does not have it.
func (l listing) lacks(id cloud.VolumeID) bool {
	f := l.known[id]
	return l.disks[id] == nil && !f.created.IsZero() && l.newest.After(f.created)
}

// since reports whether the list is certainly from that moment or later.
func (l listing) since(moment time.Time) bool { return !moment.IsZero() && !l.younger.Before(moment) }

// deletes notes that the cloud has taken on a delete of this process, and when that was sent.
func (k *facts) deletes(id cloud.VolumeID, since time.Time) {
	k.change(id, func(f *fact) { f.deleting = since })
}

// attached notes that an attach has ended, or with no machine a detach.
func (k *facts) attached(id cloud.VolumeID, machine string, at time.Time) {
	if at.IsZero() {
		at = time.Now()
	}
	k.change(id, func(f *fact) {
		*f = f.knownAt(at)
		f.machine = machine
	})
}
