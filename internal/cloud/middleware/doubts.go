package middleware

import (
	"maps"
	"sync"
	"time"
)

// doubtful is for how long a list is not trusted to show what a create has made.
const doubtful = 2 * time.Minute

// doubts are the names of the creates with an open outcome, and since when. A list that shows nothing of such
// a name may be older than what was made. They carry no correctness: another controller has its own.
type doubts struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// add takes in a name, and drops those that are too old to matter.
func (d *doubts) add(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.since, func(_ string, since time.Time) bool { return time.Since(since) > doubtful })
	if d.since == nil {
		d.since = map[string]time.Time{}
	}
	d.since[name] = time.Now()
}

// settle ends the doubt: what has the name is known.
func (d *doubts) settle(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.since, name)
}

func (d *doubts) has(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, found := d.since[name]
	return found && time.Since(since) <= doubtful
}
