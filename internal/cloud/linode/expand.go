package linode

import (
	"context"
	"fmt"
	"math"
	"net/http"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ExpandVolume makes a volume larger, also while it is attached. The Linode that has it sees the new size
// only when it is attached the next time, which the node has to confirm.
func (c *Cloud) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	n, ok := volumeNumber(id)
	want := gib(size)
	switch {
	case !ok:
		return cloud.Expansion{}, fmt.Errorf("expand volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	case want > maxSize:
		return cloud.Expansion{}, fmt.Errorf("expand volume %d: %s is more than %d GiB, the largest volume: %w", n, size, maxSize, fault.OutOfRange)
	}
	v, err := c.grow(ctx, n, want)
	if err != nil {
		return cloud.Expansion{}, err
	}
	return cloud.Expansion{Size: sizeOf(v), NodeMustConfirm: linodeOf(v) != 0}, nil
}

// grow returns the volume when it has the size and no growth of it is under way.
func (c *Cloud) grow(ctx context.Context, id, want int) (*volume, error) {
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	name := fmt.Sprintf("expand volume %d to %d GiB", id, want)
	v, err := c.readVolume(ctx, id, budget.Read)
	if err == nil && v.Size >= want && v.Status != statusActive {
		v, err = c.settled(ctx, id) // the size shows before it is there, and goes back if that fails
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case gone(v):
		return nil, fmt.Errorf("%s: %w: there is no such volume", name, fault.NotFound)
	case v.Size >= want && v.Status == statusActive:
		return v, nil
	}
	_, err = ops.Run(ctx, c.ops, ops.Op[*volume]{
		Name: name, Kind: "resize", Object: volumeKey(id), Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (*volume, string, error) {
			shown, err := c.sendVolume(ctx, w, http.MethodPost, pathOf(volumesPath, id)+"/resize", map[string]int{"size": want})
			return shown, operation(id, toBeActive, want), err
		},
		State: func(ctx context.Context) (*volume, error) { return c.findVolume(ctx, id, budget.Read) },
		Decide: func(v *volume, settled bool, refusal error) error {
			return decideResize(v, want, settled, refusal)
		},
	})
	if err != nil {
		return nil, err
	}
	// The answer has the size, and the Linode, that the cloud shows after the last step (failure C5).
	if v, err = c.readVolume(ctx, id, budget.Read); err != nil {
		return nil, fmt.Errorf("%s: it has grown; read it after that: %w", name, err)
	}
	return v, nil
}

// decideResize says what a refused growth means. A volume that is attached is no explanation: it grows there.
func decideResize(v *volume, want int, settled bool, refusal error) error {
	switch {
	case gone(v):
		return fmt.Errorf("%w: there is no such volume: %w", fault.NotFound, refusal)
	case v.Status == statusBroken:
		return fmt.Errorf("%w: %w", errBroken(v), refusal)
	case v.Size >= want && v.Status == statusActive:
		return nil
	case v.Status == statusRotating:
		return fmt.Errorf("%w: %w", errRotating, refusal)
	case !settled || changing(v) || fault.Of(refusal) == fault.Busy:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	case fault.Of(refusal) == fault.OutOfRange || fault.Of(refusal) == fault.Exhausted:
		return refusal // a size that cannot be, or a quota
	default:
		return fmt.Errorf("%w: %w", fault.Precondition, refusal)
	}
}

// sizeOf is a volume's size.
func sizeOf(v *volume) cloud.Bytes { return cloud.Bytes(v.Size) * cloud.GiB }

// gib rounds a size up to what the cloud counts in.
func gib(size cloud.Bytes) int {
	if size > math.MaxInt64-cloud.GiB {
		return math.MaxInt64 / int(cloud.GiB)
	}
	return int((size + cloud.GiB - 1) / cloud.GiB)
}
