package digitalocean

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ExpandVolume makes a volume larger, also while it is attached.
func (c *Cloud) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	name := fmt.Sprintf("expand volume %.80s to %s", id, size)
	switch {
	case !objectID(id):
		return cloud.Expansion{}, fmt.Errorf("%s: %w: no volume has such an id", name, fault.NotFound)
	case size > maxSize*cloud.GiB:
		return cloud.Expansion{}, fmt.Errorf("%s: more than %d GiB, the largest volume: %w", name, maxSize, fault.OutOfRange)
	}
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	want := gib(size)
	vol, err := c.volumes.Get(ctx, id)
	if err == nil && vol.SizeGigaBytes >= want { // an action that is under way may show it and take it back
		vol, err = ops.Settle(ctx, c.ops, volumeKey(id), func(ctx context.Context) (*volume, error) { return c.readVolume(ctx, id) })
	}
	if err != nil {
		return cloud.Expansion{}, fmt.Errorf("%s: %w", name, err)
	}
	if vol.SizeGigaBytes >= want {
		return cloud.Expansion{Size: cloud.Bytes(vol.SizeGigaBytes) * cloud.GiB}, nil
	}
	if err := c.resize(ctx, name, vol, want); err != nil {
		return cloud.Expansion{}, err
	}
	// The answer has the size that the cloud shows after the last step (C5). An action that has completed
	// says nothing of a volume that was deleted meanwhile.
	vol, err = c.readVolume(ctx, id)
	if err != nil {
		return cloud.Expansion{}, fmt.Errorf("%s: it has grown; read it after that: %w", name, err)
	}
	has := max(vol.SizeGigaBytes, want) // the completed action is newer than a read that lags behind
	return cloud.Expansion{Size: cloud.Bytes(has) * cloud.GiB}, nil
}

func (c *Cloud) resize(ctx context.Context, name string, vol *volume, want int64) error {
	id, machine := cloud.VolumeID(vol.ID), ""
	if len(vol.DropletIDs) > 0 {
		machine = dropletKey(vol.DropletIDs[0])
	}
	_, err := ops.Run(ctx, c.ops, ops.Op[*volume]{
		Name: name, Kind: "resize", Object: volumeKey(id), Machine: machine, Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (*volume, string, error) {
			action, err := c.startAction(ctx, w, id, map[string]any{"type": "resize", "size_gigabytes": want, "region": regionOf(vol)})
			return nil, action, err
		},
		State: func(ctx context.Context) (*volume, error) { return c.findVolume(ctx, id) },
		Decide: func(vol *volume, settled bool, refusal error) error {
			return decideResize(vol, want, settled, refusal)
		},
	})
	return err
}

// decideResize says what a refused growth means. A volume that is attached is no explanation: it usually grows
// there.
func decideResize(vol *volume, want int64, settled bool, refusal error) error {
	a := api.AnswerOf(refusal)
	switch {
	case vol == nil:
		return fmt.Errorf("%w: there is no such volume: %w", fault.NotFound, refusal)
	case !settled:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	case vol.SizeGigaBytes >= want:
		return nil
	case fault.Of(refusal) == fault.Busy:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	case len(vol.DropletIDs) > 0 && a != nil && a.Says(textNoResize):
		return fmt.Errorf("droplet %d does not let it grow while it is attached; scale the workload to zero, wait until the VolumeAttachment "+
			"is gone: the volume grows with the next attempt, within a minute or two; then scale up: %w: %w", vol.DropletIDs[0], fault.GrowDetach, a)
	default:
		return fmt.Errorf("%w: %w", fault.Precondition, refusal)
	}
}
