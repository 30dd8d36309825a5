package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// NewVolume asks for a volume.
type NewVolume struct {
	// Name is unique within the pool.
	Name string
	// Size is rounded up to SizeStep.
	Size       int64
	Parameters []Pair
	Tags       []Pair
}

// Create makes a volume and returns when all its space is reserved and durable. fault.Conflict when
// the name is taken, fault.Exhausted when there is no room, fault.OutOfRange for an impossible size;
// then, and when the context ends, nothing is left behind. fault.Uncertain when it could not be
// cleared away.
func (p *Pool) Create(ctx context.Context, v NewVolume) (Record, error) {
	size, err := roundUp(v.Size)
	if err == nil {
		if nameErr := checkName(v.Name); nameErr != nil {
			err = fmt.Errorf("%w: %w", fault.InvalidArgument, nameErr)
		}
	}
	if err != nil {
		return Record{}, fmt.Errorf("create volume %q: %w", v.Name, err)
	}
	unlock, err := p.enter(ctx)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	if err := p.admit(v.Name, size); err != nil {
		return Record{}, err
	}
	r := Record{
		ID: NewID(), Name: v.Name, Size: size, State: Creating, Created: time.Now().UTC().Truncate(time.Second),
		Parameters: v.Parameters, Tags: v.Tags,
	}
	if err := p.build(ctx, &r); err != nil {
		return Record{}, p.takeBack(r, err)
	}
	return r, nil
}

// admit refuses a name that is taken and a size for which there is no room. It is exact, because the
// lock is held from here until the space is reserved.
func (p *Pool) admit(name string, size int64) error {
	entries, err := p.settle()
	if err != nil {
		return err
	}
	if e, taken := named(entries, name); taken {
		return fmt.Errorf("create volume %q: the name belongs to volume %s: %w", name, p.Handle(e.ID), fault.Conflict)
	}
	free, err := p.free(entries)
	if err != nil {
		return err
	}
	if size > free {
		return fmt.Errorf("create volume %q of %d bytes on node %s: the pool %s has room for %d more: %w", name, size, p.node, p.dir, free, fault.Exhausted)
	}
	return nil
}

// build does the three steps of a create. The record that says "creating" is durable before the
// image exists, so an image that a killed process left is known for what it is and its space comes
// back; the image is durable before the record says "ready", so a volume that was ever
// reported has all its bytes.
func (p *Pool) build(ctx context.Context, r *Record) error {
	if err := p.writeRecord(*r); err != nil {
		return err
	}
	if err := p.disk.createImage(ctx, p.ImagePath(r.ID), r.Size); err != nil {
		return err
	}
	r.State = Ready
	return p.writeRecord(*r)
}

// takeBack removes what a failed create made. It does not look at the context: a caller that went
// away is one more reason to leave nothing.
func (p *Pool) takeBack(r Record, cause error) error {
	if err := p.erase(r.ID); err != nil {
		return fmt.Errorf("create volume %q: %w: %w", r.Name, fault.Uncertain, errors.Join(cause, err))
	}
	return fmt.Errorf("create volume %q: %w", r.Name, kindOf(cause))
}

// roundUp makes a size a multiple of SizeStep and refuses one outside the bounds.
func roundUp(size int64) (int64, error) {
	if size < SmallestVolume || size > LargestVolume {
		return 0, fmt.Errorf("size %d is not between %d and %d: %w", size, SmallestVolume, LargestVolume, fault.OutOfRange)
	}
	return (size + SizeStep - 1) / SizeStep * SizeStep, nil
}
