package ops

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
)

// queue runs the changes of one object, and those of one machine, one at a time in the order of their arrival. Clouds run one change
// of a machine at a time, and a refusal costs a request and loses the order. For changes of others to the same machines, see Run.
//
// If a cloud limits the number of running operations, changes whose keys are free wait for a slot, which the most urgent one gets.
// Some slots are kept for detaches and attaches.
type queue struct {
	metrics  *Metrics
	capacity int // 0: any number

	mu      sync.Mutex
	waiting []*ticket // in the order of arrival
	held    map[string]bool
	running int
}

// ticket is a change that waits for its keys.
type ticket struct {
	priority budget.Priority
	keys     []string
	granted  chan struct{}
}

// acquire waits until the change has its keys, and returns the function that releases them. If ctx ends first, behind is the number of
// changes before it with the same keys.
func (q *queue) acquire(ctx context.Context, p budget.Priority, keys ...string) (release func(), behind int, err error) {
	t := &ticket{priority: p, granted: make(chan struct{})}
	for _, key := range keys {
		if key != "" {
			t.keys = append(t.keys, key)
		}
	}
	q.mu.Lock()
	q.waiting = append(q.waiting, t)
	q.metrics.queued(+1, 0)
	q.grant()
	q.mu.Unlock()
	release = sync.OnceFunc(func() { q.release(t) })
	select {
	case <-t.granted:
		return release, 0, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	at := slices.Index(q.waiting, t)
	for _, other := range q.waiting[:max(at, 0)] {
		if other.meets(t.keys) {
			behind++
		}
	}
	if at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
		q.metrics.queued(-1, 0)
		q.grant()
	}
	q.mu.Unlock()
	if at < 0 { // granted at the same moment
		release()
	}
	return nil, behind + 1, ctx.Err()
}

func (q *queue) release(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range t.keys {
		delete(q.held, key)
	}
	q.running--
	q.metrics.queued(0, -1)
	q.grant()
}

// grant gives keys to waiting changes. A waiting change blocks its keys for later ones.
func (q *queue) grant() {
	wanted := map[string]bool{}
	var free []*ticket
	for _, t := range q.waiting {
		if !slices.ContainsFunc(t.keys, func(key string) bool { return q.held[key] || wanted[key] }) {
			free = append(free, t)
		}
		for _, key := range t.keys {
			wanted[key] = true
		}
	}
	if q.capacity > 0 {
		slices.SortStableFunc(free, func(a, b *ticket) int { return cmp.Compare(a.priority, b.priority) })
	}
	for _, t := range free {
		if q.capacity > 0 && q.running >= q.places(t.priority) {
			break // those behind it have no more places
		}
		for _, key := range t.keys {
			q.held[key] = true
		}
		q.running++
		q.waiting = slices.DeleteFunc(q.waiting, func(other *ticket) bool { return other == t })
		q.metrics.queued(-1, +1)
		close(t.granted)
	}
}

// places returns how many changes may run when one of this priority begins. A restore of a large snapshot may occupy its slot for as
// long as a call waits, so a fifth is kept for detaches and attaches, for which pods wait.
func (q *queue) places(p budget.Priority) int {
	if p > budget.Attach {
		return q.capacity - q.capacity/5
	}
	return q.capacity
}

func (t *ticket) meets(keys []string) bool {
	return slices.ContainsFunc(t.keys, func(key string) bool { return slices.Contains(keys, key) })
}
