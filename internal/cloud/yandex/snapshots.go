package yandex

import (
	"context"
	"fmt"
	"slices"
	"strings"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// description is the description of all objects that the driver creates.
const description = "Created by cloudblock-csi"

// CreateSnapshot creates a snapshot of a disk as of this moment and returns while the cloud still copies.
//
// A request keeps the snapshot that was returned for it first. external-snapshotter repeats the request until it is ready, keeps the
// first id and reads only from later answers whether it is ready (updateSnapshotContentStatus in
// pkg/sidecar-controller/snapshot_controller.go, v8.6.0). If another snapshot replaced one that the cloud has failed, the
// VolumeSnapshot would become ready with an id that does not exist. So the request fails from then on, with a kind that is final for
// the sidecar (isCSIFinalError): with another kind a user could not delete the VolumeSnapshot (shouldDelete). What the cloud leaves of
// the snapshot, or else its idempotency key, is the record of the failure.
func (c *Cloud) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	doing := fmt.Sprintf("create snapshot %q of disk %.80s", req.Name, req.Volume)
	if err := c.CheckSnapshot(req); err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	labels, err := c.owner.Labels(req.Name, req.Tags, cloud.Source{})
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	snap, err := c.earlierSnapshot(ctx, req)
	if err == nil && snap == nil {
		snap, err = c.takeSnapshot(ctx, idempotentCreate{
			name: doing, what: keySnapshot, request: req.Name,
			exists: func(ctx context.Context, made createResult) (bool, error) { return c.snapshotExists(ctx, req, made) },
		}, &compute.CreateSnapshotRequest{
			FolderId: c.folder, DiskId: string(req.Volume), Name: c.cloudName(req.Name), Description: description, Labels: labels,
		})
	}
	if err != nil {
		return cloud.Snapshot{}, wrap(err, "%s", doing)
	}
	return snapshotOf(snap), nil
}

// earlierSnapshot returns the snapshot of an earlier call for a request that is not ready yet, or nil.
func (c *Cloud) earlierSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (*compute.Snapshot, error) {
	same, err := c.snapshotsNamed(ctx, c.cloudName(req.Name))
	if err != nil {
		return nil, err
	}
	ours := c.snapshotsFor(req.Name, same)
	switch {
	case len(ours) == 0:
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	case len(ours) > 1:
		return nil, errDuplicateSnapshots(req.Name, ours)
	case ours[0].GetStatus() == compute.Snapshot_ERROR:
		return nil, errLost(req.Name, ours[0].GetId(), nil)
	case ours[0].GetSourceDiskId() != string(req.Volume), ours[0].GetStatus() == compute.Snapshot_READY:
		return nil, fmt.Errorf("an earlier call has made %s for it: %w", ours[0].GetId(), fault.Conflict)
	}
	return ours[0], nil
}

// snapshotExists reports whether the snapshot of an already finished create still exists. One that is gone, and was not deleted by this
// program, is lost.
func (c *Cloud) snapshotExists(ctx context.Context, req cloud.CreateSnapshotRequest, made createResult) (bool, error) {
	if _, deleted := c.deleted.Get(made.id); deleted {
		return false, nil
	}
	snap, err := c.readSnapshot(ctx, cloud.SnapshotID(made.id))
	switch {
	case saysNone(err):
		return false, errLost(req.Name, made.id, made.failure)
	case err != nil:
		return false, fmt.Errorf("%w: %w", fault.Uncertain, err)
	case made.failure != nil:
		return false, errLost(req.Name, made.id, made.failure)
	}
	return snap.GetStatus() != compute.Snapshot_DELETING, nil
}

// takeSnapshot sends the create and reads the snapshot.
func (c *Cloud) takeSnapshot(ctx context.Context, k idempotentCreate, body *compute.CreateSnapshotRequest) (*compute.Snapshot, error) {
	k.kind = "snapshot"
	k.send = func(ctx context.Context, w *ops.Write) (*operation.Operation, error) {
		return c.snapshots.Create(ctx, body, by(w))
	}
	id, err := c.create(ctx, k)
	switch {
	case failedWith(err) && id != "" && k.wait:
		return nil, c.discardSnapshot(ctx, cloud.SnapshotID(id), err)
	case err != nil:
		return nil, err
	}
	snap, err := c.readSnapshot(ctx, cloud.SnapshotID(id))
	switch {
	case err != nil:
		return nil, fmt.Errorf("snapshot %s was begun: %w: %w", id, fault.Uncertain, err)
	case snap.GetSourceDiskId() != body.GetDiskId(): // an earlier call that asked for another one is still making it
		return nil, fmt.Errorf("snapshot %s has its name and is of disk %s: %w", id, snap.GetSourceDiskId(), fault.Conflict)
	}
	return snap, nil
}

// errLost is the error for a request whose snapshot is lost.
func errLost(request, id string, why error) error {
	err := fmt.Errorf("%w: snapshot %s, which was made for the request %q, is not there: the cloud has given it up, or it was deleted by hand; "+
		"a request never gets another snapshot: delete the VolumeSnapshot, and make a new one; "+
		"if the snapshot is still in the folder then, in the state ERROR, delete it too",
		fault.VolumeDamaged, id, request)
	if why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// errDuplicateSnapshots is the error for a request with several snapshots.
func errDuplicateSnapshots(request string, snaps []*compute.Snapshot) error {
	ids := make([]string, 0, len(snaps))
	for _, s := range snaps {
		ids = append(ids, s.GetId())
	}
	return fmt.Errorf("the snapshots %s were all made for the request %q, and each of them may have been returned for it; "+
		"delete the one that no VolumeSnapshotContent has as its snapshotHandle: %w", strings.Join(ids, " and "), request, fault.Unavailable)
}

// FindSnapshot returns the snapshot of a request. A failed snapshot is not returned, but it holds the name. Several are left to the
// operator, as in FindVolume.
func (c *Cloud) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	same, err := c.snapshotsNamed(ctx, c.cloudName(name))
	if err != nil {
		return cloud.Snapshot{}, err
	}
	if ours := c.snapshotsFor(name, same); len(ours) > 1 {
		return cloud.Snapshot{}, errDuplicateSnapshots(name, ours)
	}
	snap, err := block.Find(name, same, func(s *compute.Snapshot) bool { return c.owner.MadeFor(name, s.GetLabels()) },
		func(s *compute.Snapshot) string { return "snapshot " + s.GetId() + " (see its labels)" })
	switch {
	case err != nil:
		return cloud.Snapshot{}, err
	case snap.GetStatus() == compute.Snapshot_ERROR:
		return cloud.Snapshot{}, fmt.Errorf("find snapshot %q: %w: %w", name, fault.Conflict, errLost(name, snap.GetId(), nil))
	}
	return snapshotOf(snap), nil
}

// snapshotsNamed returns the snapshots with exactly this name, oldest first, without those that are being deleted.
func (c *Cloud) snapshotsNamed(ctx context.Context, name string) ([]*compute.Snapshot, error) {
	same, err := c.snapshotList(budget.Read, nameIs(name)).Complete(ctx)
	if err != nil {
		return nil, err
	}
	same = slices.DeleteFunc(same, func(s *compute.Snapshot) bool {
		return s.GetName() != name || s.GetStatus() == compute.Snapshot_DELETING
	})
	slices.SortFunc(same, func(a, b *compute.Snapshot) int { return a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime()) })
	return same, nil
}

// GetSnapshot returns the current state of a snapshot.
func (c *Cloud) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	if !objectID(id) {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %.80q: %w: no snapshot has such an id", id, fault.NotFound)
	}
	snap, err := c.readSnapshot(ctx, id)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	return snapshotOf(snap), nil
}

// readSnapshot reads a snapshot; fault.NotFound if there is none.
func (c *Cloud) readSnapshot(ctx context.Context, id cloud.SnapshotID) (*compute.Snapshot, error) {
	snap, err := c.snapshots.Get(ctx, &compute.GetSnapshotRequest{SnapshotId: string(id)})
	switch {
	case err != nil:
		return nil, wrap(err, "read snapshot %s", id)
	case snap.GetId() != string(id):
		return nil, fmt.Errorf("read snapshot %s: %w: the answer is about something else", id, fault.Unavailable)
	}
	return snap, nil
}

// findSnapshot reads a snapshot; nil if there is none.
func (c *Cloud) findSnapshot(ctx context.Context, id cloud.SnapshotID) (*compute.Snapshot, error) {
	snap, err := c.readSnapshot(ctx, id)
	if saysNone(err) {
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	}
	return snap, err
}

// snapshotsFor selects the snapshots that this cluster created for a request.
func (c *Cloud) snapshotsFor(request string, of []*compute.Snapshot) []*compute.Snapshot {
	return slices.DeleteFunc(slices.Clone(of), func(s *compute.Snapshot) bool { return !c.owner.MadeFor(request, s.GetLabels()) })
}

// DeleteSnapshot deletes a snapshot.
func (c *Cloud) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	return c.deleteSnapshot(ctx, id, budget.Write)
}

func (c *Cloud) deleteSnapshot(ctx context.Context, id cloud.SnapshotID, p budget.Priority) error {
	if !objectID(id) {
		return nil
	}
	_, err := ops.Run(ctx, c.ops, ops.Op[*compute.Snapshot]{
		Name: "delete snapshot " + string(id), Kind: "delete snapshot", Object: snapshotKey(id), Priority: p,
		Submit: func(ctx context.Context, w *ops.Write) (*compute.Snapshot, string, error) {
			op, err := started(c.snapshots.Delete(ctx, &compute.DeleteSnapshotRequest{SnapshotId: string(id)}, by(w)))
			return nil, op, err
		},
		State: func(ctx context.Context) (*compute.Snapshot, error) { return c.findSnapshot(ctx, id) },
		Decide: func(snap *compute.Snapshot, _ bool, refusal error) error {
			if snap == nil {
				return nil
			}
			return fmt.Errorf("%w: %w", fault.Busy, refusal) // it is being made, or a disk is being made from it
		},
	})
	if err == nil {
		c.deleted.Put(string(id), struct{}{})
	}
	return err
}

// discardSnapshot deletes what a failed create of a snapshot has left and returns its failure; fault.Uncertain if the delete fails.
func (c *Cloud) discardSnapshot(ctx context.Context, id cloud.SnapshotID, why error) error {
	snap, err := c.findSnapshot(ctx, id)
	switch {
	case err != nil:
	case snap == nil, snap.GetStatus() == compute.Snapshot_READY, snap.GetStatus() == compute.Snapshot_DELETING:
		return why
	default:
		err = c.DeleteSnapshot(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("%w: snapshot %s may be left: %w: %w", fault.Uncertain, id, err, why)
	}
	return why
}
