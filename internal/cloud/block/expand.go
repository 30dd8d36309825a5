package block

import (
	"context"
	"fmt"
	"math"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// GiB rounds a size up to whole GiB.
func GiB(size cloud.Bytes) int64 {
	if size > math.MaxInt64-cloud.GiB {
		return math.MaxInt64 / int64(cloud.GiB)
	}
	return int64((size + cloud.GiB - 1) / cloud.GiB)
}

// ExpandVolume grows a volume, also an attached one.
func (b *Verbs) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	name := fmt.Sprintf("expand %s %.80s to %s", b.traits.VolumeWord, id, size)
	switch {
	case !b.traits.VolumeID(id):
		return cloud.Expansion{}, fmt.Errorf("%s: %w: no %s has such an id", name, fault.NotFound, b.traits.VolumeWord)
	case size > b.traits.Largest:
		return cloud.Expansion{}, fmt.Errorf("%s: more than %d GiB, the largest %s: %w", name, b.traits.Largest/cloud.GiB, b.traits.VolumeWord, fault.OutOfRange)
	}
	v, err := b.grow(ctx, name, id, size)
	if err != nil {
		return cloud.Expansion{}, err
	}
	return cloud.Expansion{Size: v.Size, NodeMustConfirm: b.traits.ConfirmsLate && len(v.AttachedTo) > 0}, nil
}

// grow returns the volume when it has the size and no growth is running.
func (b *Verbs) grow(ctx context.Context, name string, id cloud.VolumeID, size cloud.Bytes) (*Volume, error) {
	ctx, cancel := b.ops.Bounded(ctx)
	defer cancel()
	v, err := b.Get(ctx, id)
	if err == nil && v.Size >= size && (v.busy() || !b.traits.ShowsChanges) {
		v, err = b.settled(ctx, id, budget.Read) // what is under way may show the size and take it back
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case v == nil:
		return nil, fmt.Errorf("%s: %w: there is no such %s", name, fault.NotFound, b.traits.VolumeWord)
	case v.Size >= size && v.Hindered != nil: // a size that shows may be that of a growth that has failed
		return nil, fmt.Errorf("%s: %w", name, v.Hindered)
	case v.Size >= size:
		return v, nil
	}
	want := cloud.Bytes(GiB(size)) * cloud.GiB
	if v.Fit != nil {
		if want, err = v.Fit(size); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := b.resize(ctx, name, v, want); err != nil {
		return nil, err
	}
	// The size is the one that the cloud shows after the growth (failure C5).
	switch v, err = b.api.Volume(ctx, id, budget.Read); {
	case err != nil:
		return nil, fmt.Errorf("%s: it has grown; read it after that: %w", name, err)
	case v == nil:
		return nil, fmt.Errorf("%s: %w: it has grown, and was deleted meanwhile", name, fault.NotFound)
	}
	v.Size = max(v.Size, want) // a change that has ended is newer than a read that lags behind
	return v, nil
}

func (b *Verbs) resize(ctx context.Context, name string, v *Volume, want cloud.Bytes) error {
	op := ops.Op[*Volume]{
		Name: name, Kind: "resize", Object: b.VolumeKey(v.ID), Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (*Volume, string, error) {
			operation, err := b.api.Resize(ctx, w, v, want)
			return nil, operation, err
		},
		State:  func(ctx context.Context) (*Volume, error) { return b.api.Volume(ctx, v.ID, budget.Read) },
		Decide: func(v *Volume, settled bool, refusal error) error { return b.decideResize(v, want, settled, refusal) },
	}
	if len(v.AttachedTo) > 0 {
		op.Related = b.related(v.AttachedTo[0])
		if b.traits.GrowsOnMachine {
			op.Machine = b.machineKey(v.AttachedTo[0])
		}
	}
	_, err := ops.Run(ctx, b.ops, op)
	return err
}

// decideResize decides about a refused growth; see ops.Op.Decide. That the volume is attached is not a reason: most clouds grow attached
// volumes.
func (b *Verbs) decideResize(v *Volume, want cloud.Bytes, settled bool, refusal error) error {
	attached := func() bool {
		return len(v.AttachedTo) > 0 && b.traits.NoGrowthAttached != nil && b.traits.NoGrowthAttached(refusal)
	}
	switch {
	case v == nil:
		return fmt.Errorf("%w: there is no such %s: %w", fault.NotFound, b.traits.VolumeWord, refusal)
	case v.Size >= want && v.Hindered == nil && (settled || b.traits.ShowsChanges):
		return nil
	case v.Hindered != nil:
		return fmt.Errorf("%w: %w", v.Hindered, refusal)
	case !settled:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	case attached():
		return fmt.Errorf("%s does not let it grow while it is attached; scale the workload to zero, wait until the VolumeAttachment is gone: "+
			"the %s grows with the next attempt, within a minute or two; then scale up: %w: %w",
			b.machineKey(v.AttachedTo[0]), b.traits.VolumeWord, fault.GrowDetach, refusal)
	}
	switch fault.Of(refusal) {
	case fault.OutOfRange, fault.Exhausted: // a size that cannot be, or a quota
		return refusal
	case fault.InvalidArgument: // a repeat would ask for the same
		return fmt.Errorf("%w: %w", fault.Precondition, refusal)
	}
	return fmt.Errorf("%w: %w", fault.Busy, refusal) // what was in the way has ended
}
