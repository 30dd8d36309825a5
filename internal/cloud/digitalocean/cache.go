package digitalocean

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// maxCached bounds the cache. What is lost is read again.
const maxCached = 20_000

// cache keeps what never changes of the volumes that this process has read. It saves reads and decides nothing.
type cache struct {
	// many: the account has more volumes than fit on a page.
	many atomic.Bool

	mu    sync.Mutex
	names map[cloud.VolumeID]string
}

// put takes in the state of a volume.
func (k *cache) put(v *volume) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names == nil || len(k.names) >= maxCached { // volumes that others delete stay in it
		k.names = map[cloud.VolumeID]string{}
	}
	k.names[cloud.VolumeID(v.ID)] = v.Name
}

func (k *cache) forget(id cloud.VolumeID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.names, id)
}

// nameOf returns the name of a volume, with a shared read where this process has not read it yet.
// fault.NotFound when there is no such volume.
func (c *Cloud) nameOf(ctx context.Context, id cloud.VolumeID) (string, error) {
	c.seen.mu.Lock()
	name, known := c.seen.names[id]
	c.seen.mu.Unlock()
	if known {
		return name, nil
	}
	vol, err := c.Get(ctx, id)
	if err != nil {
		return "", err
	}
	return vol.Name, nil
}
