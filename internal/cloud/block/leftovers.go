package block

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
)

// maxSwept bounds how many leftovers are removed in one go.
const maxSwept = 20

// Leftovers removes what interrupted clones have left of what they go through: temporary snapshots, or unfinished copies.
type Leftovers struct {
	// InUse has the names of those that calls of this process have.
	InUse

	ops *ops.Runner
	age time.Duration
	log *zap.Logger
}

// NewLeftovers returns Leftovers. From which age one that is not in use belongs to no call any more, age says.
func NewLeftovers(runner *ops.Runner, age time.Duration, log *zap.Logger) *Leftovers {
	return &Leftovers{ops: runner, age: age, log: log}
}

// Leftover is one of what clones go through.
type Leftover struct {
	ID, Name string
	// Age is for how long it has been as it is.
	Age time.Duration
	// Kept: a clone goes through it, whatever its age.
	Kept bool
	// Remove removes it, and reports whether it was there and as it was listed.
	Remove func(ctx context.Context) (removed bool, err error)
}

// Every sweeps at an interval from now on; not at all if that is negative.
func (l *Leftovers) Every(interval time.Duration, sweep func(ctx context.Context) error) {
	if interval > 0 {
		l.ops.Every(interval, sweep, func(err error) { l.log.Warn("could not remove what interrupted clones have left", zap.Error(err)) })
	}
}

// Sweep removes those that no call can need any more, and counts the others.
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
