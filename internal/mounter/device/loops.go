package device

import (
	"context"
	"errors"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Loops finds the volumes of all pools of a node. A volume that may be in a missing pool is fault.Precondition,
// never fault.NotFound; its number is known all the same.
type Loops struct {
	pools *pool.Set
	// blank is a Loop without a pool. Its parts that the pools share are the kernel's.
	blank Loop
}

var _ Resolver = (*Loops)(nil)

// NewLoops returns the resolver of the pools of a node.
func NewLoops(pools *pool.Set, node string, cfg LoopConfig) *Loops {
	return &Loops{pools: pools, blank: newLoop(node, cfg)}
}

// Check proves that all pools are there and can be written, and that the settings of loop devices can be.
func (l *Loops) Check(ctx context.Context) error {
	return errors.Join(l.pools.Check(ctx), l.blank.checkSys())
}

// Open is Loop.Open.
func (l *Loops) Open(ctx context.Context, claim Claim) (*Device, error) {
	one, err := l.of(ctx, claim)
	if err != nil {
		return nil, err
	}
	return one.Open(ctx, claim)
}

// Lookup is Loop.Lookup.
func (l *Loops) Lookup(ctx context.Context, claim Claim) (*Device, error) {
	one, err := l.of(ctx, claim)
	if err != nil {
		return nil, err
	}
	return one.Lookup(ctx, claim)
}

// Number is Loop.Number, which needs no pool: the pods of a missing pool's volumes can be taken down.
func (l *Loops) Number(ctx context.Context, claim Claim) (uint64, error) {
	return l.blank.Number(ctx, claim)
}

// ByNumber is Loop.ByNumber.
func (l *Loops) ByNumber(ctx context.Context, volume string, number uint64) (*Device, error) {
	one, err := l.of(ctx, Claim{Volume: volume})
	if err != nil {
		return nil, err
	}
	return one.ByNumber(ctx, volume, number)
}

// Release is Loop.Release.
func (l *Loops) Release(ctx context.Context, claim Claim) error {
	one, err := l.of(ctx, claim)
	if err != nil {
		return err
	}
	return one.Release(ctx, claim)
}

// Grow is Loop.Grow.
func (l *Loops) Grow(ctx context.Context, claim Claim, size int64) (int64, error) {
	one, err := l.of(ctx, claim)
	if err != nil {
		return 0, err
	}
	return one.Grow(ctx, claim, size)
}

// NeverWritten is Loop.NeverWritten.
func (l *Loops) NeverWritten(ctx context.Context, d *Device) (bool, error) {
	one, err := l.of(ctx, d.Claim())
	if err != nil {
		return false, err
	}
	return one.NeverWritten(ctx, d)
}

// of returns the resolver of the pool that has the volume. For a volume that no pool has, the first usable pool answers:
// a loop device on a removed image can be released under any pool's lock.
func (l *Loops) of(ctx context.Context, claim Claim) (*Loop, error) {
	id, err := l.blank.parse(claim)
	if err != nil {
		return nil, err
	}
	p, err := l.pools.WithVolume(ctx, id)
	if errors.Is(err, fault.NotFound) {
		var usable []*pool.Pool
		if usable, err = l.pools.Pools(ctx); err == nil && len(usable) == 0 {
			err = errNoDevice(claim)
		}
		if err == nil {
			p = usable[0]
		}
	}
	if err != nil {
		return nil, err
	}
	one := l.blank
	one.pool = p
	return &one, nil
}
