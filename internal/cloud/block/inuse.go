package block

import "sync"

// InUse counts, by name, what calls of this process are working with, so that what tidies up in the background
// keeps off it. Its zero value is ready.
type InUse struct {
	mu    sync.Mutex
	names map[string]int
}

// Begin says that a call works with what has this name, until end is called.
func (u *InUse) Begin(name string) (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.names == nil {
		u.names = map[string]int{}
	}
	u.names[name]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.names[name]--; u.names[name] == 0 {
			delete(u.names, name)
		}
	}
}

// Has reports whether a call works with what has this name.
func (u *InUse) Has(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.names[name] > 0
}
