package block

import "sync"

// InUse has the names of the objects that calls of this process are using, so that a sweep does not delete them. The zero value is ready
// to use.
type InUse struct {
	mu    sync.Mutex
	names map[string]int
}

// Begin marks the object with this name as in use until end is called.
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

// Has reports whether a call is using the object with this name.
func (u *InUse) Has(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.names[name] > 0
}
