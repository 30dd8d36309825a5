package yandex

import (
	"context"
	"fmt"
	"slices"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateVolume creates a disk with one write and returns it when it is READY.
func (c *Cloud) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	zones, err := c.CheckCreate(req, c.Capabilities(), c.zone)
	var body *compute.CreateDiskRequest
	if err == nil {
		body, err = c.createBody(req)
	}
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	if req.Source.Volume != "" {
		return c.clone(ctx, req, body, zones)
	}
	return c.createIn(ctx, req, body, zones)
}

func (c *Cloud) createBody(req cloud.CreateVolumeRequest) (*compute.CreateDiskRequest, error) {
	params, err := parse(req.Parameters)
	if err != nil {
		return nil, err
	}
	size, err := fitted(req.Size, req.Limit, params.diskType, params.block)
	if err != nil {
		return nil, err
	}
	var own []cloud.Tag
	if params.asked != "" {
		own = append(own, cloud.Tag{Key: labelParameters, Value: params.asked})
	}
	labels, err := c.owner.Labels(req.Name, req.Tags, req.Source, own...)
	if err != nil {
		return nil, err
	}
	body := &compute.CreateDiskRequest{
		FolderId: c.folder, Name: c.cloudName(req.Name), Description: description, Labels: labels,
		TypeId: params.diskType, Size: int64(size), BlockSize: int64(params.block), KmsKeyId: params.kmsKey,
		DiskPlacementPolicy: params.placement(),
	}
	if req.Source.Snapshot != "" {
		body.Source = &compute.CreateDiskRequest_SnapshotId{SnapshotId: string(req.Source.Snapshot)}
	}
	return body, nil
}

// createIn creates the disk in the first zone that can have it. It tries the next zone only if the refusal is, or may be, about the
// zone.
func (c *Cloud) createIn(ctx context.Context, req cloud.CreateVolumeRequest, body *compute.CreateDiskRequest, zones []string) (cloud.Volume, error) {
	vol, err := block.InZones(zones, func(zone string) (cloud.Volume, error) {
		body.ZoneId = zone
		for {
			vol, err := c.createOne(ctx, req, body)
			switch fault.Of(err) {
			case fault.Exhausted:
				if zone != zones[len(zones)-1] {
					return vol, fmt.Errorf("%w: %w", fault.NoZone, err)
				}
				return vol, err
			case fault.InvalidArgument, fault.NotFound, fault.Precondition:
			default:
				return vol, err
			}
			larger, why := c.checkSource(ctx, body, req.Limit)
			if why == nil && !larger {
				why = c.refused(ctx, body, err)
			}
			switch {
			case why != nil:
				return vol, fmt.Errorf("%w: %w", why, err)
			case !larger:
				return vol, err
			}
		}
	})
	return vol, wrap(err, "create volume %q", req.Name)
}

// checkSource reads the snapshot of a refused create. It reports whether the disk has to be larger, and sets the size in body. An
// error is about the snapshot.
func (c *Cloud) checkSource(ctx context.Context, body *compute.CreateDiskRequest, limit cloud.Bytes) (larger bool, err error) {
	if body.GetSnapshotId() == "" {
		return false, nil
	}
	snap, err := c.readSnapshot(ctx, cloud.SnapshotID(body.GetSnapshotId()))
	switch {
	case err != nil:
		return false, err
	case snap.GetStatus() != compute.Snapshot_READY:
		return false, fmt.Errorf("snapshot %s is %s and cannot be restored now: %w", snap.GetId(), snap.GetStatus(), fault.Unavailable)
	case snap.GetDiskSize() <= body.GetSize():
		return false, nil
	}
	size, err := fitted(cloud.Bytes(snap.GetDiskSize()), limit, body.GetTypeId(), cloud.Bytes(body.GetBlockSize()))
	if err != nil {
		return false, fmt.Errorf("its source was a disk of %d bytes: %w", snap.GetDiskSize(), err)
	}
	body.Size = int64(size)
	return true, nil
}

// refused returns why a zone refused a create: fault.NoZone if it has no disks of that type, or if the placement group is in another
// zone; nil if the refusal is not about the zone.
func (c *Cloud) refused(ctx context.Context, body *compute.CreateDiskRequest, refusal error) error {
	kind, err := c.diskTypes.Get(ctx, &compute.GetDiskTypeRequest{DiskTypeId: body.GetTypeId()})
	if a := answerOf(err); a != nil && (a.code == codes.NotFound || a.code == codes.InvalidArgument) {
		return fmt.Errorf("there is no disk type %q: %w", body.GetTypeId(), fault.InvalidArgument)
	}
	switch id := body.GetDiskPlacementPolicy().GetPlacementGroupId(); {
	case err != nil:
		return wrap(err, "read which zones have disks of the type %s", body.GetTypeId())
	case !slices.Contains(kind.GetZoneIds(), body.GetZoneId()):
		return fmt.Errorf("%s has no disks of the type %s: %w", body.GetZoneId(), body.GetTypeId(), fault.NoZone)
	case id != "":
		group, err := c.groups.Get(ctx, &compute.GetDiskPlacementGroupRequest{DiskPlacementGroupId: id})
		switch {
		case saysNone(err):
			return fmt.Errorf("there is no placement group %s of disks: %w", id, fault.InvalidArgument)
		case err != nil:
			return wrap(err, "read the zone of placement group %s", id)
		case group.GetZoneId() != body.GetZoneId():
			return fmt.Errorf("placement group %s is in %s: %w", id, group.GetZoneId(), fault.NoZone)
		}
	}
	if fault.Of(refusal) == fault.NotFound { // the source is there
		return fmt.Errorf("what the class names does not exist: %w", fault.InvalidArgument)
	}
	return nil
}

// createOne creates a disk and returns it when it is READY. fault.Conflict if another disk has the name; then this call leaves
// nothing.
func (c *Cloud) createOne(ctx context.Context, req cloud.CreateVolumeRequest, body *compute.CreateDiskRequest) (cloud.Volume, error) {
	k := idempotentCreate{
		name: fmt.Sprintf("create volume %q of %s in %s as %s", req.Name, cloud.Bytes(body.GetSize()), body.GetZoneId(), body.GetTypeId()),
		kind: "create", what: keyDisk, request: req.Name, wait: true,
		send: func(ctx context.Context, w *ops.Write) (*operation.Operation, error) {
			return c.disks.Create(ctx, body, by(w))
		},
		exists: func(ctx context.Context, made createResult) (bool, error) { return c.diskExists(ctx, req, made) },
	}
	if body.GetSnapshotId() != "" {
		k.name, k.kind = k.name+" from snapshot "+body.GetSnapshotId(), "restore"
	}
	id, err := c.create(ctx, k)
	switch {
	case failedWith(err) && id != "":
		return cloud.Volume{}, c.discard(ctx, cloud.VolumeID(id), err)
	case failedWith(err):
		return cloud.Volume{}, fmt.Errorf("%w: %w", fault.Uncertain, err) // what it left is not known
	case err != nil:
		return cloud.Volume{}, err
	}
	return c.created(ctx, req, body.GetName(), cloud.VolumeID(id))
}

// diskExists reports whether the disk of an already finished create still exists. If it is gone and the request has another disk, it
// returns fault.Conflict.
func (c *Cloud) diskExists(ctx context.Context, req cloud.CreateVolumeRequest, made createResult) (bool, error) {
	d, err := c.findDisk(ctx, cloud.VolumeID(made.id), budget.Read)
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", fault.Uncertain, err)
	case made.failure != nil:
		if err := c.discardDisk(ctx, d, made.failure); fault.Of(err) == fault.Uncertain {
			return false, err
		}
	case d != nil && d.GetStatus() != compute.Disk_DELETING:
		return true, nil
	}
	same, err := c.disksNamed(ctx, c.cloudName(req.Name))
	if err != nil {
		return false, fmt.Errorf("%w: %w", fault.Uncertain, err)
	}
	if ours := c.disksFor(req.Name, same); len(ours) > 0 {
		return false, fmt.Errorf("disk %s has its name: %w", ours[0].GetId(), fault.Conflict)
	}
	return false, nil
}

// created returns the disk of a create. If other disks have its name for the same request, it returns an error that lists them:
// names may not be unique in this cloud, and it forgets idempotency keys. Each of the disks may have been returned before, so
// created deletes none.
func (c *Cloud) created(ctx context.Context, req cloud.CreateVolumeRequest, name string, id cloud.VolumeID) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q", req.Name)
	same, err := c.disksNamed(ctx, name)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: disk %s was made: %w: %w", doing, id, fault.Uncertain, err)
	}
	var made *compute.Disk
	if at := slices.IndexFunc(same, func(d *compute.Disk) bool { return idOf(d) == id }); at >= 0 {
		made = same[at]
	}
	if made.GetStatus() != compute.Disk_READY { // the list lags behind
		if made, err = c.readDisk(ctx, id, budget.Read); err != nil {
			return cloud.Volume{}, fmt.Errorf("%s: disk %s was made: %w: %w", doing, id, fault.Uncertain, err)
		}
	}
	others := slices.DeleteFunc(c.disksFor(req.Name, same), func(d *compute.Disk) bool { return idOf(d) == id })
	vol := c.volumeOf(made)
	switch {
	case len(others) > 0:
		return cloud.Volume{}, fmt.Errorf("%s: %w: %w", doing, fault.Uncertain, errDuplicates(append(others, made)))
	case made.GetStatus() != compute.Disk_READY:
		return cloud.Volume{}, fmt.Errorf("%s: %w: %w", doing, fault.Uncertain, notReady(made))
	}
	return vol, nil
}

// discard deletes what a failed create has left and returns its failure; fault.Uncertain if the delete fails. The disk was never
// ready, so it holds no data.
func (c *Cloud) discard(ctx context.Context, id cloud.VolumeID, why error) error {
	d, err := c.findDisk(ctx, id, budget.Read)
	if err != nil {
		return fmt.Errorf("%w: disk %s may be left: %w: %w", fault.Uncertain, id, err, why)
	}
	return c.discardDisk(ctx, d, why)
}

func (c *Cloud) discardDisk(ctx context.Context, d *compute.Disk, why error) error {
	switch {
	case d == nil, d.GetStatus() == compute.Disk_DELETING:
		return why
	case d.GetStatus() == compute.Disk_READY || len(d.GetInstanceIds()) > 0:
		return fmt.Errorf("%w: disk %s is there all the same: %w", fault.Uncertain, d.GetId(), why)
	}
	return c.TakeBack(ctx, idOf(d), why)
}
