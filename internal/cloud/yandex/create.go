package yandex

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateVolume makes a disk: one write, and it is waited for until it is READY.
func (c *Cloud) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q", req.Name)
	if err := checkCreate(req); err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	body, err := c.createBody(req)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	zones := c.zones(req)
	if len(zones) == 0 {
		return cloud.Volume{}, fmt.Errorf("%s: none of %q is a zone: %w", doing, req.Zones, fault.Exhausted)
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
	labels, err := c.labels(req.Name, req.Tags, req.Source, own...)
	if err != nil {
		return nil, err
	}
	body := &compute.CreateDiskRequest{
		FolderId: c.folder, Name: c.cloudName(req.Name), Description: "Created by cloudblock-csi", Labels: labels,
		TypeId: params.diskType, Size: int64(size), BlockSize: int64(params.block), KmsKeyId: params.kmsKey,
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
		vol, err := c.create(ctx, req, body)
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
		case serves:
			return cloud.Volume{}, err
		case last:
			return cloud.Volume{}, fmt.Errorf("%s: none of the zones %s has disks of the type %s: %w: %w",
				doing, strings.Join(zones, ", "), body.GetTypeId(), fault.Exhausted, err)
		}
	}
}

// checkSource looks at the snapshot of a refused create. It reports whether the disk has to be larger, which
// body then says; the error tells what is wrong with the snapshot.
func (c *Cloud) checkSource(ctx context.Context, body *compute.CreateDiskRequest, limit cloud.Bytes) (larger bool, err error) {
	if body.GetSnapshotId() == "" {
		return false, nil
	}
	snap, err := c.snapshot(ctx, cloud.SnapshotID(body.GetSnapshotId()))
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

// serves says, of a zone that refused a create, whether it could have served it: it has disks of that type.
func (c *Cloud) serves(ctx context.Context, body *compute.CreateDiskRequest) (bool, error) {
	kind, err := c.diskTypes.Get(ctx, &compute.GetDiskTypeRequest{DiskTypeId: body.GetTypeId()})
	if a := answerOf(err); a != nil && (a.code == codes.NotFound || a.code == codes.InvalidArgument) {
		return false, fmt.Errorf("there is no disk type %q: %w", body.GetTypeId(), fault.InvalidArgument)
	}
	return slices.Contains(kind.GetZoneIds(), body.GetZoneId()), readError("look which zones have disks of the type "+body.GetTypeId(), err)
}

// create makes one disk and returns it when it is READY. fault.Conflict where the name is held, by whatever
// disk; then nothing of this call is left.
func (c *Cloud) create(ctx context.Context, req cloud.CreateVolumeRequest, body *compute.CreateDiskRequest) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q in %s", req.Name, body.GetZoneId())
	kind := kindCreate
	if body.GetSnapshotId() != "" {
		kind = kindRestore
	}
	m := &making{c: c, doing: doing, what: keyDisk, request: req.Name, send: func(ctx context.Context) (*operation.Operation, error) {
		return c.disks.Create(ctx, body)
	}}
	t := &turn{c: c, doing: doing, shows: isReady}
	t.send = func(ctx context.Context) (*change, error) {
		id, op, err := m.begin(ctx)
		if op == "" {
			return nil, err
		}
		c.known.making(cloud.VolumeID(id), m.asked)
		return &change{watch: watch{operation: op, disk: cloud.VolumeID(id), name: body.GetName(), grows: true, kind: kind}, began: time.Now()}, err
	}
	seen, err := t.do(ctx)
	switch {
	case hasFailed(err) && t.running() != nil: // else it was an earlier call's, which is told by itself
		return cloud.Volume{}, c.discard(ctx, t.running().disk, err)
	case err != nil:
		return cloud.Volume{}, err
	}
	made, err := c.made(ctx, m, t, seen)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	c.known.saw(made, false)
	c.known.settle(idOf(made), seen.at)
	return c.chosen(ctx, req, m, made, append(seen.twins, m.twins...))
}

func isReady(s sight) bool { return s.disk.GetStatus() == compute.Disk_READY }

// made returns the disk that is there after a create.
func (c *Cloud) made(ctx context.Context, m *making, t *turn, seen sight) (*compute.Disk, error) {
	if m.earlier != nil {
		return m.earlier, nil
	}
	if isReady(seen) {
		return seen.disk, nil
	}
	id := t.running().disk
	d, err := c.disk(ctx, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("disk %s was made and cannot be looked at: %w: %w", id, fault.Uncertain, err)
	case d.GetStatus() != compute.Disk_READY:
		return nil, fmt.Errorf("disk %s was made and is %s: %w", id, d.GetStatus(), fault.Uncertain)
	}
	return d, nil
}

// mostDoubt bounds how long after the end of its create a disk that was made in vain may be removed. Whether it was
// this call that made it is known to the second only; nobody can have written to it and detached it by then.
const mostDoubt = 3 * time.Second

// chosen answers with the disk of the key's operation, or, where its name has others for the same request, with none
// on a guess: names may not be unique in this cloud, and idempotency keys are forgotten some day. An answer once given
// must never change, and its disk never go, so it matters who may have been told of which:
//
//   - This very call has begun the operation: nobody was told of made. An older disk may have been, so it is the
//     request's volume, and made goes, by its id and at once, unless somebody has attached it. A newer one is another
//     controller's, which removes it by the same rule, and made is the answer.
//   - An earlier call or another process has begun it: each of the disks may have been handed out, of which lists may
//     have shown them one alone. Nothing is removed and none is answered, until somebody has deleted the one that no
//     PersistentVolume has.
func (c *Cloud) chosen(ctx context.Context, req cloud.CreateVolumeRequest, m *making, made *compute.Disk, twins []*compute.Disk) (cloud.Volume, error) {
	twins = slices.DeleteFunc(twins, func(d *compute.Disk) bool {
		return !c.madeFor(req.Name, d.GetLabels()) || d.GetStatus() == compute.Disk_DELETING
	})
	older := slices.IndexFunc(twins, func(d *compute.Disk) bool { return oldestFirst(d, made) < 0 })
	switch {
	case len(twins) > 0 && !m.own, older >= 0 && len(made.GetInstanceIds()) > 0:
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w: %w", req.Name, fault.Uncertain, errTwins(append(twins, made)))
	case older >= 0:
		return cloud.Volume{}, c.remove(remote.LeaveBy(ctx, time.Now().Add(mostDoubt)), idOf(made), fmt.Errorf("create volume %q: disk %s has the name %s already: %w",
			req.Name, twins[older].GetId(), made.GetName(), fault.Conflict))
	}
	vol := c.volumeOf(made)
	if !req.FitsExisting(vol) { // an earlier call with other wishes was still making it
		return cloud.Volume{}, fmt.Errorf("create volume %q: disk %s has its name and is another one: %w", req.Name, vol.ID, fault.Conflict)
	}
	return vol, nil
}

// errTwins is what several disks of one request are answered with.
func errTwins(disks []*compute.Disk) error {
	var ids []string
	for _, d := range disks {
		ids = append(ids, d.GetId())
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return fmt.Errorf("the disks %s have the name %s of this request, and it is not known which of them was handed out; "+
		"delete the one that no PersistentVolume has as its volumeHandle: %w", strings.Join(ids, " and "), disks[0].GetName(), fault.Unavailable)
}

// remove deletes what this call has made, by its id, and returns why; fault.Uncertain where that fails.
func (c *Cloud) remove(ctx context.Context, id cloud.VolumeID, why error) error {
	if err := c.DeleteVolume(ctx, id); err != nil {
		return fmt.Errorf("%w: disk %s is left: %w: %w", fault.Uncertain, id, err, why)
	}
	return why
}

// discard deletes what a create that the cloud gave up has left, if anything, and returns why. The disk has
// never been ready, so there is nothing on it.
func (c *Cloud) discard(ctx context.Context, id cloud.VolumeID, why error) error {
	d, err := c.look(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("%w: disk %s may be left: %w: %w", fault.Uncertain, id, err, why)
	case d == nil, d.GetStatus() == compute.Disk_DELETING:
		return why
	case d.GetStatus() == compute.Disk_READY || len(d.GetInstanceIds()) > 0:
		return fmt.Errorf("%w: disk %s is there all the same: %w", fault.Uncertain, id, why)
	}
	return c.remove(ctx, id, why)
}
