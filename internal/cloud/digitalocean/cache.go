package digitalocean

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// constants are what never changes about a volume, and its size, which only grows.
type constants struct {
	name string
	gib  int64
}

// maxCached bounds the cache. What is lost is read again.
const maxCached = 20_000

// cache keeps what this process has read of volumes. It saves reads and decides nothing.
type cache struct {
	// many: the account has more volumes than fit on a page.
	many atomic.Bool

	mu      sync.Mutex
	volumes map[cloud.VolumeID]constants
}

// put takes in the state of a volume.
func (k *cache) put(v *volume) { k.sizeOf(v) }

// sizeOf takes in the state of a volume and returns its size in GiB: the largest that was read, because a read may
// lag behind.
func (k *cache) sizeOf(v *volume) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := cloud.VolumeID(v.ID)
	before := k.volumes[id].gib
	if k.volumes == nil || len(k.volumes) >= maxCached { // volumes that others delete stay in it
		k.volumes = map[cloud.VolumeID]constants{}
	}
	has := constants{name: v.Name, gib: max(v.SizeGigaBytes, before)}
	k.volumes[id] = has
	return has.gib
}

func (k *cache) forget(id cloud.VolumeID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.volumes, id)
}

// known returns the constants of a volume, with a shared read where this process has not read it yet.
// fault.NotFound when there is no such volume.
func (c *Cloud) known(ctx context.Context, id cloud.VolumeID) (constants, error) {
	c.seen.mu.Lock()
	has, known := c.seen.volumes[id]
	c.seen.mu.Unlock()
	if known {
		return has, nil
	}
	vol, err := c.volumes.Get(ctx, id)
	if err != nil {
		return constants{}, err
	}
	return constants{name: vol.Name, gib: vol.SizeGigaBytes}, nil
}
