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
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Pools finds the volumes of all pools of a node. For a volume in a missing pool it returns fault.Precondition and never
// fault.NotFound. Number works without the pool.
type Pools struct {
	pools *pools.Set
	// blank is a loop without a pool, for calls that only read the kernel's devices.
	blank loop
}

var _ Resolver = (*Pools)(nil)

// poolResolver finds the volumes of one pool. Its calls get the id that Pools has parsed from the spec.
type poolResolver interface {
	Open(ctx context.Context, spec Spec, id pool.ID) (*Device, error)
	Lookup(ctx context.Context, spec Spec, id pool.ID) (*Device, error)
	Release(ctx context.Context, spec Spec, id pool.ID) error
	Grow(ctx context.Context, spec Spec, id pool.ID, size int64) (int64, error)
	// NeverWritten reports whether the pool proves that no byte of a device was ever written.
	NeverWritten(ctx context.Context, d *Device, id pool.ID) (bool, error)
	// MarkWritten records that a device is about to be written, where NeverWritten depends on a record.
	MarkWritten(ctx context.Context, id pool.ID) error
}

// NewPools returns the resolver of the pools of a node.
func NewPools(pools *pools.Set, node string, cfg LoopConfig) *Pools {
	return &Pools{pools: pools, blank: newLoop(node, cfg)}
}

// Check proves that all pools are there and writable, and, if a pool needs loop devices, that their settings can be written. It
// switches discard off below pools that were mounted since the last Check. While a pool's disk hangs, it waits in one thread, however
// often Check is called.
func (l *Pools) Check(ctx context.Context) error {
	err := l.blank.guard.Run(ctx, "the pools", openBound, l.check)
	if errors.Is(err, wait.ErrNoAnswer) {
		return fmt.Errorf("the disk of a pool hangs (see the kernel's log): %w: %w", fault.Unavailable, err)
	}
	return err
}

func (l *Pools) check(ctx context.Context) error {
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

// Open is loop.Open.
func (l *Pools) Open(ctx context.Context, spec Spec) (*Device, error) {
	one, id, err := l.of(ctx, spec)
	if err != nil {
		return nil, err
	}
	return one.Open(ctx, spec, id)
}

// Lookup is loop.Lookup.
func (l *Pools) Lookup(ctx context.Context, spec Spec) (*Device, error) {
	one, id, err := l.of(ctx, spec)
	if err != nil {
		return nil, err
	}
	return one.Lookup(ctx, spec, id)
}

// Number is loop.Number, which needs no pool: the pods of a missing pool's volumes can be taken down. Only if several loop devices have
// files with the name of the volume's, it opens them and compares the files.
func (l *Pools) Number(ctx context.Context, spec Spec) (uint64, error) {
	h, err := l.blank.parseHandle(spec)
	if err != nil {
		return 0, err
	}
	if p := l.elsewhere(ctx, h); p != nil {
		return 0, fmt.Errorf("volume %s is in the pool %s: %w", spec.Volume, p.Name(), fault.NotFound)
	}
	number, err := l.blank.Number(spec, h.ID)
	switch {
	case errors.Is(err, fault.NotFound):
		return (&group{blank: l.blank}).Number(spec, h.ID)
	case errors.Is(err, errSeveralLoops):
		if dev, lookupErr := l.Lookup(ctx, Spec{Volume: spec.Volume}); lookupErr == nil {
			return dev.Number(), dev.Close()
		}
	}
	return number, err
}

// elsewhere returns another open pool that has a volume with the same digits as this id, or nil. The names of devices have only
// the digits of an id and not its pool.
func (l *Pools) elsewhere(ctx context.Context, h pool.Handle) pool.Storage {
	for _, p := range l.pools.Opened() {
		err := errors.New("the pool that the id names")
		if p.Name() != h.Pool {
			switch p := p.(type) {
			case *files.Pool:
				// A pool whose disk hangs does not stop the volumes of the others.
				err = l.blank.guard.run(ctx, "pool "+p.Name(), openBound, func(context.Context) error {
					_, err := os.Lstat(p.ImagePath(h.ID))
					return err
				})
			case *lvm.Pool:
				_, err = (&group{blank: l.blank, pool: p}).Number(Spec{Volume: h.String()}, h.ID)
			}
		}
		if err == nil {
			return p
		}
	}
	return nil
}

// ByNumber looks the volume up by its id, which its image or its device has in the name, and checks the number.
func (l *Pools) ByNumber(ctx context.Context, volume string, number uint64) (*Device, error) {
	dev, err := l.Lookup(ctx, Spec{Volume: volume})
	if err == nil && dev.Number() != number {
		return nil, errors.Join(fmt.Errorf("volume %s is another device: %w", volume, fault.NotFound), dev.Close())
	}
	return dev, err
}

// Release is loop.Release.
func (l *Pools) Release(ctx context.Context, spec Spec) error {
	one, id, err := l.of(ctx, spec)
	if err != nil {
		return err
	}
	return one.Release(ctx, spec, id)
}

// Grow is loop.Grow.
func (l *Pools) Grow(ctx context.Context, spec Spec, size int64) (int64, error) {
	one, id, err := l.of(ctx, spec)
	if err != nil {
		return 0, err
	}
	return one.Grow(ctx, spec, id, size)
}

// NeverWritten is loop.NeverWritten.
func (l *Pools) NeverWritten(ctx context.Context, d *Device) (bool, error) {
	one, id, err := l.of(ctx, d.Spec())
	if err != nil {
		return false, err
	}
	return one.NeverWritten(ctx, d, id)
}

// MarkWritten records that a device is about to be written, if its pool needs that.
func (l *Pools) MarkWritten(ctx context.Context, d *Device) error {
	one, id, err := l.of(ctx, d.Spec())
	if err != nil {
		return err
	}
	return one.MarkWritten(ctx, id)
}

// of returns the resolver of the pool that the volume's id names, and the id's last part.
func (l *Pools) of(ctx context.Context, spec Spec) (poolResolver, pool.ID, error) {
	h, err := l.blank.parseHandle(spec)
	if err != nil {
		return nil, "", err
	}
	p, err := l.pools.Of(ctx, h)
	if err != nil {
		return nil, "", err
	}
	switch p := p.(type) {
	case *lvm.Pool:
		return &group{blank: l.blank, pool: p}, h.ID, nil
	case *files.Pool:
		one := l.blank
		one.pool = p
		return &one, h.ID, nil
	}
	return nil, "", fmt.Errorf("pool %s has no devices: %w", p.Location(), fault.Unsupported)
}

func isFiles(p pool.Storage) bool {
	_, files := p.(*files.Pool)
	return files
}
