package digitalocean

import (
	"context"
	"sync"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// A fact is what this process has seen of a volume. Name and region never change; the size only grows,
// so it is a lower bound; droplet and wish may be old and only say where a look is worth its request.
type fact struct {
	name, region string
	gib          int64
	droplet      int
	wish         bool
}

// facts are what this process remembers. Nothing here decides anything: without it there are more requests.
type facts struct {
	mu      sync.Mutex
	volumes map[cloud.VolumeID]fact
}

func factOf(v *godo.Volume) fact {
	f := fact{name: v.Name, region: regionOf(v), gib: v.SizeGigaBytes}
	if len(v.DropletIDs) > 0 {
		f.droplet = v.DropletIDs[0]
	}
	_, f.wish = wishOf(v.Tags)
	return f
}

// saw takes in the state of a volume. A fresh one was asked for alone; a list may lag behind, so it does
// not unsay what is known already.
func (k *facts) saw(v *godo.Volume, fresh bool) {
	f := factOf(v)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.volumes == nil {
		k.volumes = map[cloud.VolumeID]fact{}
	}
	if old, known := k.volumes[cloud.VolumeID(v.ID)]; known && !fresh {
		f.gib, f.droplet, f.wish = max(f.gib, old.gib), old.droplet, f.wish || old.wish
	}
	k.volumes[cloud.VolumeID(v.ID)] = f
}

// sawAll takes in a complete list, and forgets what is on it no more.
func (k *facts) sawAll(all []godo.Volume) {
	listed := make(map[cloud.VolumeID]bool, len(all))
	for i := range all {
		k.saw(&all[i], false)
		listed[cloud.VolumeID(all[i].ID)] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.volumes {
		if !listed[id] {
			delete(k.volumes, id)
		}
	}
}

func (k *facts) of(id cloud.VolumeID) (fact, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, known := k.volumes[id]
	return f, known
}

// change corrects what is known of a volume, if anything is.
func (k *facts) change(id cloud.VolumeID, edit func(*fact)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f, known := k.volumes[id]; known {
		edit(&f)
		k.volumes[id] = f
	}
}

func (k *facts) forget(id cloud.VolumeID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.volumes, id)
}

// know returns what there is to know of a volume, with a shared read where this process has never seen
// it. fault.NotFound when there is no such volume.
func (c *Cloud) know(ctx context.Context, id cloud.VolumeID) (fact, error) {
	if f, known := c.known.of(id); known {
		return f, nil
	}
	vol, err := c.states.Get(ctx, id)
	if err != nil {
		return fact{}, err
	}
	return factOf(vol), nil // a list that began before the volume was made may have unsaid what was seen of it
}
