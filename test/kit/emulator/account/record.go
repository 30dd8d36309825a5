package account

import (
	"maps"
	"slices"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// Stats are the counters of an account's API and how many changes ran at once on a machine at most, by the
// machine's id K.
type Stats[K comparable] struct {
	rest.Stats
	MaxParallel map[K]int `json:"max_parallel"`
}

// Shown returns what the owner is shown of each row.
func Shown[R, T any](rows []R, show func(R) T) []T {
	var all []T
	for _, row := range rows {
		all = append(all, show(row))
	}
	return all
}

// Sorted returns the rows of a table that keep says yes to, in order.
func Sorted[K comparable, R any](rows map[K]R, keep func(R) bool, order func(a, b R) int) []R {
	var found []R
	for _, row := range rows {
		if keep(row) {
			found = append(found, row)
		}
	}
	slices.SortFunc(found, order)
	return found
}

// Count returns how many rows of a table is says yes to.
func Count[K comparable, R any](rows map[K]R, is func(R) bool) int {
	n := 0
	for _, row := range rows {
		if is(row) {
			n++
		}
	}
	return n
}

// Record is what an account remembers for its owner, and its API does not show: operations O, violations V,
// and how many changes ran at once on a machine, by the machine's id K. The zero value is empty.
type Record[K comparable, O, V any] struct {
	mu         sync.Mutex
	operations []O
	violations []V
	parallel   map[K]int
	// dropped is how many operations were forgotten by resets, so that the numbers of running ones stay.
	dropped int
}

// Reset forgets everything.
func (r *Record[K, O, V]) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped += len(r.operations)
	r.operations, r.violations, r.parallel = nil, nil, nil
}

// Add remembers an operation and returns its number.
func (r *Record[K, O, V]) Add(op O) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations = append(r.operations, op)
	return r.dropped + len(r.operations) - 1
}

// Change changes an operation, unless it is forgotten.
func (r *Record[K, O, V]) Change(number int, change func(*O)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := number - r.dropped; at >= 0 {
		change(&r.operations[at])
	}
}

// Violate remembers something that must not have happened.
func (r *Record[K, O, V]) Violate(v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, v)
}

// Parallel remembers that so many changes run on a machine at once.
func (r *Record[K, O, V]) Parallel(machine K, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parallel == nil {
		r.parallel = map[K]int{}
	}
	r.parallel[machine] = max(r.parallel[machine], n)
}

// Operations returns the operations, in the order in which they were accepted.
func (r *Record[K, O, V]) Operations() []O {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.operations)
}

// Violations returns what must not have happened.
func (r *Record[K, O, V]) Violations() []V {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// MaxParallel returns how many changes ran at once on each machine at most.
func (r *Record[K, O, V]) MaxParallel() map[K]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[K]int{}
	maps.Copy(all, r.parallel)
	return all
}
