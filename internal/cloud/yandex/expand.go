package yandex

import (
	"context"
	"fmt"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ExpandVolume makes a disk larger, also while it is attached.
func (c *Cloud) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	name := fmt.Sprintf("expand disk %.80s to %s", id, size)
	switch {
	case !objectID(id):
		return cloud.Expansion{}, fmt.Errorf("%s: %w: no disk has such an id", name, fault.NotFound)
	case size > maxDisk:
		return cloud.Expansion{}, fmt.Errorf("%s: more than %s, the largest disk: %w", name, maxDisk, fault.OutOfRange)
	}
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	d, err := c.volumes.Get(ctx, id)
	if err == nil && sizeOf(d) >= size { // an operation that is under way may show it and take it back
		d, err = ops.Settle(ctx, c.ops, diskKey(id), func(ctx context.Context) (*compute.Disk, error) { return c.readDisk(ctx, id) })
	}
	if err != nil {
		return cloud.Expansion{}, about(err, "%s", name)
	}
	if sizeOf(d) >= size {
		return cloud.Expansion{Size: sizeOf(d)}, nil
	}
	want, err := fitted(size, 0, d.GetTypeId(), cloud.Bytes(d.GetBlockSize()))
	if err != nil {
		return cloud.Expansion{}, about(err, "%s", name)
	}
	if err := c.resize(ctx, name, d, want); err != nil {
		return cloud.Expansion{}, err
	}
	// The answer has the size that the cloud shows after the last step (C5).
	if d, err = c.readDisk(ctx, id); err != nil {
		return cloud.Expansion{}, fmt.Errorf("%s: it has grown; read it after that: %w", name, err)
	}
	return cloud.Expansion{Size: max(want, sizeOf(d))}, nil // the operation that has ended is newer than a read that lags behind
}

func (c *Cloud) resize(ctx context.Context, name string, d *compute.Disk, want cloud.Bytes) error {
	involved := ""
	if len(d.GetInstanceIds()) > 0 {
		involved = instanceKey(d.GetInstanceIds()[0])
	}
	id := idOf(d)
	_, err := ops.Run(ctx, c.ops, ops.Op[*compute.Disk]{
		Name: name, Kind: "resize", Object: diskKey(id), Involved: involved, Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (*compute.Disk, string, error) {
			op, err := started(c.disks.Update(ctx, &compute.UpdateDiskRequest{
				DiskId: string(id), Size: int64(want), UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"size"}},
			}, by(w)))
			return nil, op, err
		},
		State: func(ctx context.Context) (*compute.Disk, error) { return c.findDisk(ctx, id) },
		Decide: func(d *compute.Disk, settled bool, refusal error) error {
			return decideResize(d, want, settled, refusal)
		},
	})
	return err
}

// decideResize says what a refused growth means. A disk that is attached is no explanation: it usually grows there.
func decideResize(d *compute.Disk, want cloud.Bytes, settled bool, refusal error) error {
	a := answerOf(refusal)
	switch {
	case d == nil:
		return fmt.Errorf("%w: there is no such disk: %w", fault.NotFound, refusal)
	case !settled:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	case sizeOf(d) >= want:
		return nil
	case fault.Of(refusal) == fault.InvalidArgument || fault.Of(refusal) == fault.OutOfRange:
		return fmt.Errorf("the disk has %s, and the cloud does not take the new size: %w: %w", sizeOf(d), fault.OutOfRange, refusal)
	case len(d.GetInstanceIds()) > 0 && a != nil && a.says(textAttached):
		return fmt.Errorf("the cloud does not let it grow while it is attached to instance %s; scale the workload to zero, wait until the "+
			"VolumeAttachment is gone: the disk grows with the next attempt, within a minute or two; then scale up: %w: %w",
			d.GetInstanceIds()[0], fault.GrowDetach, a)
	}
	return fmt.Errorf("%w: %w", fault.Busy, refusal)
}
