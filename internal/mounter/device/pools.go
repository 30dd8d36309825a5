package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/lvm"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
)

// Pools finds the volumes of all pools of a node. A volume in a missing pool is fault.Precondition, never fault.NotFound; its number is known all the same.
type Pools struct {
	pools *pools.Set
	// blank is a Loop without a pool. Its parts that the pools share are the kernel's.
	blank Loop
}

var _ poolResolver = (*Pools)(nil)

// poolResolver finds the volumes of one pool.
type poolResolver interface {
	Resolver
	// NeverWritten reports whether the pool proves that all of a device reads as zeros.
	NeverWritten(ctx context.Context, d *Device) (bool, error)
	// MarkWritten notes that a device is about to be written, where the pool's proof is a note.
	MarkWritten(ctx context.Context, d *Device) error
}

// NewPools returns the resolver of the pools of a node.
func NewPools(pools *pools.Set, node string, cfg LoopConfig) *Pools {
	return &Pools{pools: pools, blank: newLoop(node, cfg)}
}

// Check proves that all pools are there and can be written, and that the settings of loop devices can be if a pool
// needs them. It switches discard off below pools that were mounted since.
func (l *Pools) Check(ctx context.Context) error {
	usable, missing := l.pools.Pools(ctx)
	if !slices.ContainsFunc(usable, isFiles) {
		return missing
	}
	errs := []error{missing, l.blank.checkSys()}
	for _, p := range usable {
		if files, ok := p.(*files.Pool); ok {
			errs = append(errs, l.blank.keepReserved(files))
		}
	}
	return errors.Join(errs...)
}

// Open is Loop.Open.
func (l *Pools) Open(ctx context.Context, spec Spec) (*Device, error) {
	one, err := l.of(ctx, spec)
	if err != nil {
		return nil, err
	}
	return one.Open(ctx, spec)
}

// Lookup is Loop.Lookup.
func (l *Pools) Lookup(ctx context.Context, spec Spec) (*Device, error) {
	one, err := l.of(ctx, spec)
	if err != nil {
		return nil, err
	}
	return one.Lookup(ctx, spec)
}

// Number is Loop.Number, which needs no pool: the pods of a missing pool's volumes can be taken down.
func (l *Pools) Number(ctx context.Context, spec Spec) (uint64, error) {
	h, err := l.blank.parseHandle(spec)
	if err != nil {
		return 0, err
	}
	if p := l.elsewhere(ctx, h); p != nil {
		return 0, fmt.Errorf("volume %s is in the pool %s: %w", spec.Volume, p.Name(), fault.NotFound)
	}
	number, err := l.blank.Number(ctx, spec)
	if errors.Is(err, fault.NotFound) {
		return (&group{blank: l.blank}).Number(ctx, spec)
	}
	return number, err
}

// elsewhere returns the open pool that has what the id names in another one, or nil. Devices have the digits of an id only.
func (l *Pools) elsewhere(ctx context.Context, h pool.Handle) pool.Storage {
	for _, p := range l.pools.Opened() {
		err := errors.New("the pool that the id names")
		if p.Name() != h.Pool {
			switch p := p.(type) {
			case *files.Pool:
				_, err = os.Lstat(p.ImagePath(h.ID))
			case *lvm.Pool:
				_, err = (&group{blank: l.blank, pool: p}).Number(ctx, Spec{Volume: h.String()})
			}
		}
		if err == nil {
			return p
		}
	}
	return nil
}

// ByNumber is Loop.ByNumber.
func (l *Pools) ByNumber(ctx context.Context, volume string, number uint64) (*Device, error) {
	one, err := l.of(ctx, Spec{Volume: volume})
	if err != nil {
		return nil, err
	}
	return one.ByNumber(ctx, volume, number)
}

// Release is Loop.Release.
func (l *Pools) Release(ctx context.Context, spec Spec) error {
	one, err := l.of(ctx, spec)
	if err != nil {
		return err
	}
	return one.Release(ctx, spec)
}

// Grow is Loop.Grow.
func (l *Pools) Grow(ctx context.Context, spec Spec, size int64) (int64, error) {
	one, err := l.of(ctx, spec)
	if err != nil {
		return 0, err
	}
	return one.Grow(ctx, spec, size)
}

// NeverWritten is Loop.NeverWritten.
func (l *Pools) NeverWritten(ctx context.Context, d *Device) (bool, error) {
	one, err := l.of(ctx, d.Spec())
	if err != nil {
		return false, err
	}
	return one.NeverWritten(ctx, d)
}

// MarkWritten notes that a device is about to be written. Files show that themselves.
func (l *Pools) MarkWritten(ctx context.Context, d *Device) error {
	one, err := l.of(ctx, d.Spec())
	if err != nil {
		return err
	}
	return one.MarkWritten(ctx, d)
}

// of returns the resolver of the pool that the volume's id names.
func (l *Pools) of(ctx context.Context, spec Spec) (poolResolver, error) {
	h, err := l.blank.parseHandle(spec)
	if err != nil {
		return nil, err
	}
	p, err := l.pools.Of(ctx, h)
	if err != nil {
		return nil, err
	}
	switch p := p.(type) {
	case *lvm.Pool:
		return &group{blank: l.blank, pool: p}, nil
	case *files.Pool:
		one := l.blank
		one.pool = p
		return &one, nil
	}
	return nil, fmt.Errorf("pool %s has no devices: %w", p.Location(), fault.Unsupported)
}

func isFiles(p pool.Storage) bool {
	_, files := p.(*files.Pool)
	return files
}
