package yandex

import (
	"context"
	"fmt"
	"slices"
	"strings"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateVolume makes a disk with one write, and returns it when it is READY.
func (c *Cloud) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q", req.Name)
	if err := checkCreate(req); err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	body, err := c.createBody(req)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	zones := c.zones(req)
	if len(zones) == 0 {
		return cloud.Volume{}, fmt.Errorf("%s: none of %q is a zone: %w", doing, req.Zones, fault.NoZone)
	}
	if req.Source.Volume != "" {
		return c.clone(ctx, req, body, zones)
	}
	return c.createIn(ctx, req, body, zones)
}

// checkCreate refuses what can be refused without a request.
func checkCreate(req cloud.CreateVolumeRequest) error {
	switch {
	case req.Name == "":
		return fmt.Errorf("it has no name: %w", fault.InvalidArgument)
	case req.Source.Snapshot != "" && !objectID(req.Source.Snapshot):
		return fmt.Errorf("snapshot %.80q: %w: no snapshot has such an id", req.Source.Snapshot, fault.NotFound)
	case req.Source.Volume != "" && !objectID(req.Source.Volume):
		return fmt.Errorf("source volume %.80q: %w: no disk has such an id", req.Source.Volume, fault.NotFound)
	default:
		return nil
	}
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

// zones are the request's that could be zones at all.
func (c *Cloud) zones(req cloud.CreateVolumeRequest) []string {
	if len(req.Zones) == 0 {
		return []string{c.zone}
	}
	return slices.DeleteFunc(slices.Clone(req.Zones), func(zone string) bool { return !zoneWord.MatchString(zone) })
}

// createIn creates in the first of the zones that can serve. Another one is tried only when the refusal is,
// or may be, about the zone.
func (c *Cloud) createIn(ctx context.Context, req cloud.CreateVolumeRequest, body *compute.CreateDiskRequest, zones []string) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q", req.Name)
	for i := 0; ; i++ {
		body.ZoneId = zones[i]
		vol, err := c.createOne(ctx, req, body)
		if err == nil {
			return vol, nil
		}
		last := i == len(zones)-1
		switch kind := fault.Of(err); {
		case kind == fault.Exhausted && !last:
			continue
		case kind != fault.InvalidArgument && kind != fault.NotFound && kind != fault.Precondition:
			return cloud.Volume{}, err
		}
		larger, why := c.checkSource(ctx, body, req.Limit)
		if why != nil {
			return cloud.Volume{}, fmt.Errorf("%s: %w: %w", doing, why, err)
		}
		if larger {
			i--
			continue
		}
		serves, why := c.serves(ctx, body)
		switch {
		case why != nil:
			return cloud.Volume{}, fmt.Errorf("%s: %w: %w", doing, why, err)
		case serves && fault.Of(err) == fault.NotFound: // the source is there
			return cloud.Volume{}, fmt.Errorf("%s: what the class names does not exist: %w: %w", doing, fault.InvalidArgument, err)
		case serves:
			return cloud.Volume{}, err
		case last && body.GetDiskPlacementPolicy() != nil:
			return cloud.Volume{}, fmt.Errorf("%s: none of the zones %s is that of placement group %s, with disks of the type %s: %w: %w",
				doing, strings.Join(zones, ", "), body.GetDiskPlacementPolicy().GetPlacementGroupId(), body.GetTypeId(), fault.NoZone, err)
		case last:
			return cloud.Volume{}, fmt.Errorf("%s: none of the zones %s has disks of the type %s: %w: %w",
				doing, strings.Join(zones, ", "), body.GetTypeId(), fault.NoZone, err)
		}
	}
}

// checkSource reads the snapshot of a refused create. It reports whether the disk has to be larger, which
// body then says; the error is about the snapshot.
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

// serves says, of a zone that refused a create, whether it could have served it: it has disks of that type, and the
// placement group if there is one.
func (c *Cloud) serves(ctx context.Context, body *compute.CreateDiskRequest) (bool, error) {
	kind, err := c.diskTypes.Get(ctx, &compute.GetDiskTypeRequest{DiskTypeId: body.GetTypeId()})
	if a := answerOf(err); a != nil && (a.code == codes.NotFound || a.code == codes.InvalidArgument) {
		return false, fmt.Errorf("there is no disk type %q: %w", body.GetTypeId(), fault.InvalidArgument)
	}
	hasType, id := slices.Contains(kind.GetZoneIds(), body.GetZoneId()), body.GetDiskPlacementPolicy().GetPlacementGroupId()
	if err != nil || !hasType || id == "" {
		return hasType, about(err, "read which zones have disks of the type %s", body.GetTypeId())
	}
	group, err := c.groups.Get(ctx, &compute.GetDiskPlacementGroupRequest{DiskPlacementGroupId: id})
	if saysNone(err) {
		return false, fmt.Errorf("there is no placement group %s of disks: %w", id, fault.InvalidArgument)
	}
	return group.GetZoneId() == body.GetZoneId(), about(err, "read the zone of placement group %s", id)
}

// createOne makes one disk and returns it when it is READY. fault.Conflict where the name is held, by whatever
// disk; then nothing of this call is left.
func (c *Cloud) createOne(ctx context.Context, req cloud.CreateVolumeRequest, body *compute.CreateDiskRequest) (cloud.Volume, error) {
	k := keyed{
		name: fmt.Sprintf("create volume %q of %s in %s as %s", req.Name, cloud.Bytes(body.GetSize()), body.GetZoneId(), body.GetTypeId()),
		kind: "create", what: keyDisk, request: req.Name, wait: true,
		send: func(ctx context.Context, w *ops.Write) (*operation.Operation, error) {
			return c.disks.Create(ctx, body, by(w))
		},
		remains: func(ctx context.Context, made creation) (bool, error) { return c.diskRemains(ctx, req, made) },
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

// diskRemains reports whether there is the disk of a create that was over with the answer. Where it is gone, and the
// request has another disk, that one is the request's: fault.Conflict.
func (c *Cloud) diskRemains(ctx context.Context, req cloud.CreateVolumeRequest, made creation) (bool, error) {
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

// created answers with the disk that a create has made, or, where its name has others for the same request, with none
// and an error that names them: names may not be unique in this cloud, and idempotency keys are forgotten some day. An
// answer once given must never change, and its disk never go, so nothing is removed either.
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
	case !req.FitsExisting(vol): // an earlier call that asked for another one was still making it
		return cloud.Volume{}, fmt.Errorf("%s: disk %s has its name and is another one: %w", doing, vol.ID, fault.Conflict)
	}
	return vol, nil
}

// discard deletes what a create that the cloud gave up has left, if anything, and returns why; fault.Uncertain where
// that fails. The disk has never been ready, so there is nothing on it.
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
	if err := c.DeleteVolume(ctx, idOf(d)); err != nil {
		return fmt.Errorf("%w: disk %s is left: %w: %w", fault.Uncertain, d.GetId(), err, why)
	}
	return why
}
