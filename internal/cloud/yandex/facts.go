package yandex

import (
	"context"
	"sync"

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
}

// facts are what this process remembers. Nothing here decides anything: without it there are more requests.
type facts struct {
	mu    sync.Mutex
	disks map[cloud.VolumeID]fact
}

func factOf(d *compute.Disk) fact {
	f := fact{diskType: d.GetTypeId(), size: sizeOf(d), block: cloud.Bytes(d.GetBlockSize())}
	if machines := d.GetInstanceIds(); len(machines) > 0 {
		f.machine = machines[0]
	}
	_, f.wish = growthOf(d.GetLabels())
	return f
}

// saw takes in the state of a disk. A fresh one was asked for alone; a list may lag behind, so it does
// not unsay what is known already.
func (k *facts) saw(d *compute.Disk, fresh bool) {
	f := factOf(d)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.disks == nil {
		k.disks = map[cloud.VolumeID]fact{}
	}
	if old, known := k.disks[idOf(d)]; known && !fresh {
		f.size, f.machine, f.wish = max(f.size, old.size), old.machine, f.wish || old.wish
	}
	k.disks[idOf(d)] = f
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
	return factOf(d), nil
}
