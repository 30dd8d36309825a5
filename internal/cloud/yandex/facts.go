package yandex

import (
	"context"
	"slices"
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

	// made is when this process has sent the create; zero: it did not, or the disk was there before.
	made time.Time
	// settled is when the disk's state was last known for certain: right after a change, or by a look at this disk
	// alone. ready is when it was so for the first time. Zero: never.
	settled, ready time.Time
	// sent is when this process has sent the attach to the machine sentTo, if the disk was never there before.
	sent   time.Time
	sentTo string
	// created is what the cloud says about when it made the disk.
	created time.Time
	been    []string // all machines that it was seen at
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
		f.been = visited(f.been, machines[0])
	}
	_, f.wish = growthOf(d.GetLabels())
	return f
}

// now notes that the state is known for certain.
func (f fact) now() fact {
	f.settled = time.Now()
	if f.ready.IsZero() {
		f.ready = f.settled
	}
	return f
}

func visited(been []string, machine string) []string {
	if slices.Contains(been, machine) {
		return been
	}
	return append(slices.Clone(been), machine)
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
	if fresh {
		f = f.now()
	}
	k.disks[idOf(d)] = f
}

// making notes that this process is making a disk, since a moment before which nobody can have seen it.
func (k *facts) making(id cloud.VolumeID, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.disks == nil {
		k.disks = map[cloud.VolumeID]fact{}
	}
	f := k.disks[id]
	f.made = since
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

// youngerThan returns a moment that a list of the folder is not older than, as far as it shows: it has a disk that
// was not there before that moment, or one at a machine where it had never been. Zero: it shows nothing of that
// kind. A list may come from a copy of the cloud's records that lags behind, and a disk that is free on it may have
// been attached since.
func (k *facts) youngerThan(all []*compute.Disk) (moment time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range all {
		f := k.disks[idOf(d)]
		if f.made.After(moment) {
			moment = f.made
		}
		if f.sent.After(moment) && attachedTo(d, f.sentTo) {
			moment = f.sent
		}
	}
	return moment
}

// attaching notes that an attach is being sent, and reports whether it is the first to that machine.
func (k *facts) attaching(id cloud.VolumeID, machine string) (first bool) {
	k.change(id, func(f *fact) {
		if first = !f.made.IsZero() && !slices.Contains(f.been, machine); first {
			f.sent, f.sentTo = time.Now(), machine
		} else {
			f.sent, f.sentTo = time.Time{}, ""
		}
		f.been = visited(f.been, machine)
	})
	return first
}

// attached notes that an attach has ended, or with no machine a detach.
func (k *facts) attached(id cloud.VolumeID, machine string) {
	k.change(id, func(f *fact) {
		*f = f.now()
		f.machine = machine
	})
}
