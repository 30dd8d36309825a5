package block

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
)

// maxSwept is the maximum number of leftovers that one sweep deletes.
const maxSwept = 20

// Leftovers deletes the temporary snapshots or unfinished copies of interrupted clones.
type Leftovers struct {
	ops *ops.Runner
	age time.Duration
	log *zap.Logger

	mu    sync.Mutex
	inUse map[string]int // by how many calls of this process, by name
}

// NewLeftovers returns Leftovers. age is the age from which a leftover belongs to no call.
func NewLeftovers(runner *ops.Runner, age time.Duration, log *zap.Logger) *Leftovers {
	return &Leftovers{ops: runner, age: age, log: log, inUse: map[string]int{}}
}

// Begin keeps the object with this name from sweeps until end is called.
func (l *Leftovers) Begin(name string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inUse[name]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.inUse[name]--; l.inUse[name] == 0 {
			delete(l.inUse, name)
		}
	}
}

// Has reports whether a call is using the object with this name.
func (l *Leftovers) Has(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse[name] > 0
}

// Leftover is a temporary snapshot or an unfinished copy.
type Leftover struct {
	ID, Name string
	// Age is the time since its last change.
	Age time.Duration
	// Kept: a clone is using it, whatever its age.
	Kept bool
	// Remove deletes it, and reports whether it existed and was unchanged since the list.
	Remove func(ctx context.Context) (removed bool, err error)
}

// Every sweeps at an interval; never if it is negative.
func (l *Leftovers) Every(interval time.Duration, sweep func(ctx context.Context) error) {
	if interval > 0 {
		l.ops.Every(interval, sweep, func(err error) { l.log.Warn("could not remove what interrupted clones have left", zap.Error(err)) })
	}
}

// Sweep deletes those that no call can need, and counts the others.
func (l *Leftovers) Sweep(ctx context.Context, all []Leftover) error {
	var failed []error
	tried, swept := 0, 0
	for _, one := range all {
		if one.Kept || one.Age < l.age || l.Has(one.Name) || tried == maxSwept {
			continue
		}
		tried++
		removed, err := one.Remove(ctx)
		switch {
		case err != nil:
			failed = append(failed, err)
		case removed:
			swept++
			l.log.Info("removed what an interrupted clone has left", zap.String("id", one.ID), zap.String("name", one.Name))
		}
	}
	l.ops.Temporary(len(all) - swept)
	return errors.Join(failed...)
}
