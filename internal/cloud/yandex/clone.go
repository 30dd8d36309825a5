package yandex

import (
	"context"
	"fmt"
	"slices"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// throughSnapshots clones disks through temporary snapshots.
func (c *Cloud) throughSnapshots(left *block.Leftovers) *block.Through[*compute.Snapshot] {
	return &block.Through[*compute.Snapshot]{
		Leftovers: left, Name: c.temporaryName, Make: c.makeTemporary, Find: c.findTemporary, Whole: c.wholeSnapshot, Delete: c.deleteSnapshot,
		ID: func(s *compute.Snapshot) cloud.SnapshotID { return cloud.SnapshotID(s.GetId()) },
	}
}

// clone creates a disk as a copy of another.
func (c *Cloud) clone(ctx context.Context, req cloud.CreateVolumeRequest, body *compute.CreateDiskRequest, zones []string) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q as a copy of disk %s", req.Name, req.Source.Volume)
	if err := c.nameIsFree(ctx, req); err != nil { // before the long way is taken
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	return c.clones.Clone(ctx, req, func(ctx context.Context, snap *compute.Snapshot) (cloud.Volume, error) {
		body.Source = &compute.CreateDiskRequest_SnapshotId{SnapshotId: snap.GetId()}
		size, err := fitted(max(req.Size, cloud.Bytes(snap.GetDiskSize())), req.Limit, body.GetTypeId(), cloud.Bytes(body.GetBlockSize()))
		if err != nil {
			return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
		}
		body.Size = int64(size)
		return c.createIn(ctx, req, body, zones)
	})
}

// nameIsFree returns fault.Conflict if a disk has the request's name already, which may be the finished clone.
func (c *Cloud) nameIsFree(ctx context.Context, req cloud.CreateVolumeRequest) error {
	found, err := c.FindVolume(ctx, req.Name)
	switch {
	case fault.Of(err) == fault.NotFound:
		return nil
	case err != nil:
		return err
	}
	c.clones.DropFor(ctx, req) // an earlier call may have ended before it came to that
	return fmt.Errorf("disk %s has the name %s: %w", found.ID, found.Name, fault.Conflict)
}

// makeTemporary creates the temporary snapshot of a clone.
func (c *Cloud) makeTemporary(ctx context.Context, req cloud.CreateVolumeRequest) (*compute.Snapshot, error) {
	labels, err := c.owner.Labels(req.Name, nil, cloud.Source{}, cloud.Tag{Key: labelTemporary, Value: "clone"})
	if err != nil {
		return nil, err
	}
	return c.takeSnapshot(ctx, idempotentCreate{
		name: fmt.Sprintf("make the temporary snapshot for volume %q of disk %s", req.Name, req.Source.Volume),
		what: keyTemporary, request: req.Name, wait: true, exists: c.temporaryExists,
	}, &compute.CreateSnapshotRequest{
		FolderId: c.folder, DiskId: string(req.Source.Volume), Name: c.temporaryName(req.Name),
		Description: description + ", which removes it too", Labels: labels,
	})
}

// temporaryExists reports whether the temporary snapshot of an already finished create still exists. It waits for a running deletion,
// which may fail and leave the snapshot.
func (c *Cloud) temporaryExists(ctx context.Context, made createResult) (bool, error) {
	snap, err := c.findSnapshot(ctx, cloud.SnapshotID(made.id))
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", fault.Uncertain, err)
	case snap == nil:
		return false, nil
	case snap.GetStatus() == compute.Snapshot_DELETING:
		return false, fmt.Errorf("an earlier temporary snapshot %s is being removed: %w", made.id, fault.Unavailable)
	case snap.GetStatus() == compute.Snapshot_READY:
		return true, nil
	}
	return false, c.DeleteSnapshot(ctx, cloud.SnapshotID(made.id)) // it was never whole
}

// wholeSnapshot waits until a snapshot of an earlier call can be restored, and returns it.
func (c *Cloud) wholeSnapshot(ctx context.Context, snap *compute.Snapshot) (*compute.Snapshot, error) {
	id := cloud.SnapshotID(snap.GetId())
	if snap.GetStatus() == compute.Snapshot_CREATING {
		now, err := ops.Settle(ctx, c.ops, snapshotKey(id), func(ctx context.Context) (*compute.Snapshot, error) { return c.readSnapshot(ctx, id) })
		if err != nil {
			return nil, fmt.Errorf("snapshot %s is being made: %w: %w", id, fault.Unavailable, err)
		}
		snap = now
	}
	switch snap.GetStatus() {
	case compute.Snapshot_READY:
		return snap, nil
	case compute.Snapshot_ERROR:
		c.clones.Drop(ctx, snap) // nothing can be made from it, and it holds the name of the next one
	}
	return nil, fmt.Errorf("snapshot %s, which an earlier call has begun, is %s: %w", id, snap.GetStatus(), fault.Unavailable)
}

// findTemporary returns the temporary snapshot of a request, or nil.
func (c *Cloud) findTemporary(ctx context.Context, req cloud.CreateVolumeRequest) (*compute.Snapshot, bool, error) {
	same, err := c.snapshotsNamed(ctx, c.temporaryName(req.Name))
	at := slices.IndexFunc(same, func(s *compute.Snapshot) bool {
		return c.isTemporary(s) && c.owner.MadeFor(req.Name, s.GetLabels()) && s.GetSourceDiskId() == string(req.Source.Volume)
	})
	if err != nil || at < 0 {
		return nil, false, err
	}
	return same[at], true, nil
}

func (c *Cloud) isTemporary(s *compute.Snapshot) bool {
	return s.GetLabels()[labelTemporary] != "" && c.owner.MadeHere(s.GetLabels())
}

// Sweep deletes old temporary snapshots of this cluster, whose clones were interrupted and never requested again. It keeps a snapshot
// from which a disk is being created.
func (c *Cloud) Sweep(ctx context.Context) error {
	all, err := c.snapshotList(budget.List, "").Complete(ctx)
	if err != nil {
		return err
	}
	var left []block.Leftover
	old := false
	for _, s := range all {
		if c.isTemporary(s) {
			l := c.clones.Leftover(s, s.GetName(), s.GetCreatedAt().AsTime(), s.GetStatus() == compute.Snapshot_CREATING)
			left, old = append(left, l), old || !l.Kept && l.Age >= c.orphanAge
		}
	}
	if old {
		sources, err := c.beingCopied(ctx)
		if err != nil {
			c.ops.Temporary(len(left))
			return err
		}
		for i := range left {
			left[i].Kept = left[i].Kept || sources[left[i].ID]
		}
	}
	return c.clones.Sweep(ctx, left)
}

// beingCopied returns the snapshots from which disks are being created.
func (c *Cloud) beingCopied(ctx context.Context) (map[string]bool, error) {
	disks, err := c.diskList(budget.List, "").Complete(ctx)
	if err != nil {
		return nil, err
	}
	sources := map[string]bool{}
	for _, d := range disks {
		if d.GetStatus() == compute.Disk_CREATING {
			sources[d.GetSourceSnapshotId()] = true
		}
	}
	return sources, nil
}
