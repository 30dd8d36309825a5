package linode

import "sync"

// maxCached bounds the cache. What is lost is read by its id.
const maxCached = 20_000

// cache keeps what volumes are called, for filters of lists. It saves reads and decides nothing.
type cache struct {
	mu sync.Mutex
	of map[int]string
}

func (k *cache) put(v *volume) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil || len(k.of) >= maxCached { // volumes that others delete stay in it
		k.of = map[int]string{}
	}
	k.of[v.ID] = v.Label
}

func (k *cache) get(id int) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	label, known := k.of[id]
	return label, known
}

func (k *cache) forget(id int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.of, id)
}
