package block

import "sync"

// maxCached is the maximum size of a Cache, because entries of objects that others delete stay.
const maxCached = 20_000

// Cache has the last observed state of objects. It only saves requests: an entry may be lost at any moment. The zero Cache is empty.
type Cache[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]V
}

// Get returns the entry of a key, if there is one.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, known := c.of[key]
	return v, known
}

// Put sets the entry of a key, and reports whether there was one.
func (c *Cache[K, V]) Put(key K, v V) (replaced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, replaced = c.of[key]
	if c.of == nil || len(c.of) >= maxCached {
		c.of = map[K]V{}
	}
	c.of[key] = v
	return replaced
}

// Invalidate removes the entry of a key.
func (c *Cache[K, V]) Invalidate(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, key)
}
