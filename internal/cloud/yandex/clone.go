package yandex

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// tidyTimeout bounds the removal of a temporary snapshot after its call has ended.
	tidyTimeout = 30 * time.Second
	// maxSwept bounds how many are removed in one go.
	maxSwept = 20
)

// clone makes a disk as a copy of another. The cloud copies through snapshots only, so there is a temporary
// one for a while. It has a name that follows from the request's, so a repeat finds it, and a label, so that a
// sweep does where no repeat comes.
func (c *Cloud) clone(ctx context.Context, req cloud.CreateVolumeRequest, body *compute.CreateDiskRequest, zones []string) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q as a copy of disk %s", req.Name, req.Source.Volume)
	defer c.cloning.Begin(c.temporaryName(req.Name))()
	if err := c.nameIsFree(ctx, req); err != nil { // before the long way is taken
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	snap, err := c.temporary(ctx, req)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	body.Source = &compute.CreateDiskRequest_SnapshotId{SnapshotId: snap.GetId()}
	size, err := fitted(max(req.Size, cloud.Bytes(snap.GetDiskSize())), req.Limit, body.GetTypeId(), cloud.Bytes(body.GetBlockSize()))
	if err != nil {
		c.drop(ctx, snap)
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	body.Size = int64(size)
	vol, err := c.createIn(ctx, req, body, zones)
	switch fault.Of(err) {
	case fault.Uncertain, fault.Unavailable, fault.Busy:
		return cloud.Volume{}, err // the repeat needs the snapshot
	case fault.NotFound:
		// The source was there a moment ago. Another controller made the same clone, or failed to.
		return cloud.Volume{}, fmt.Errorf("%s: %w: its temporary snapshot was removed: %w", doing, fault.Unavailable, err)
	default:
		c.drop(ctx, snap) // the copy is whole when the disk is ready
		return vol, err
	}
}

// nameIsFree answers fault.Conflict where the request's name is held already. If that is by the copy, it has been
// made then.
func (c *Cloud) nameIsFree(ctx context.Context, req cloud.CreateVolumeRequest) error {
	same, err := c.disksNamed(ctx, c.cloudName(req.Name))
	if err != nil || len(same) == 0 {
		return err
	}
	if ours := c.disksFor(req.Name, same); len(ours) > 0 {
		if _, err := c.whenReady(ctx, ours[0]); err != nil {
			return err
		}
		c.dropTemporary(ctx, req) // an earlier call may have ended before it came to that
	}
	return fmt.Errorf("disk %s has the name %s: %w", same[0].GetId(), same[0].GetName(), fault.Conflict)
}

// temporary makes the snapshot for a clone, or finds the one that an earlier call made.
func (c *Cloud) temporary(ctx context.Context, req cloud.CreateVolumeRequest) (*compute.Snapshot, error) {
	labels, err := c.owner.Labels(req.Name, nil, cloud.Source{}, cloud.Tag{Key: labelTemporary, Value: "clone"})
	if err != nil {
		return nil, err
	}
	snap, err := c.takeSnapshot(ctx, keyed{
		name: fmt.Sprintf("make the temporary snapshot for volume %q of disk %s", req.Name, req.Source.Volume),
		what: keyTemporary, request: req.Name, wait: true, remains: c.temporaryRemains,
	}, &compute.CreateSnapshotRequest{
		FolderId: c.folder, DiskId: string(req.Source.Volume), Name: c.temporaryName(req.Name),
		Description: description + ", which removes it too", Labels: labels,
	})
	if fault.Of(err) != fault.Conflict {
		return snap, err
	}
	found, findErr := c.findTemporary(ctx, req)
	switch {
	case findErr != nil:
		return nil, fmt.Errorf("%w: %w", fault.Unavailable, findErr)
	case found == nil:
		return nil, fmt.Errorf("%w: the name of its temporary snapshot is held by another one: %s", fault.Precondition, err.Error())
	}
	return c.wholeSnapshot(ctx, found)
}

// temporaryRemains reports whether there is the temporary snapshot of a create that was over with the answer. While
// one is being removed it may come back, if that fails, so another is not made before the end.
func (c *Cloud) temporaryRemains(ctx context.Context, made creation) (bool, error) {
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

// wholeSnapshot returns a snapshot that an earlier call has begun when it can be restored.
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
		c.drop(ctx, snap) // nothing can be made from it, and it holds the name of the next one
	}
	return nil, fmt.Errorf("snapshot %s, which an earlier call has begun, is %s: %w", id, snap.GetStatus(), fault.Unavailable)
}

// findTemporary returns the temporary snapshot of a request, or nil.
func (c *Cloud) findTemporary(ctx context.Context, req cloud.CreateVolumeRequest) (*compute.Snapshot, error) {
	same, err := c.snapshotsNamed(ctx, c.temporaryName(req.Name))
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(same, func(s *compute.Snapshot) bool {
		return c.isTemporary(s) && c.owner.MadeFor(req.Name, s.GetLabels()) && s.GetSourceDiskId() == string(req.Source.Volume)
	})
	if at < 0 {
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	}
	return same[at], nil
}

// dropTemporary removes what an earlier call for the same clone has left.
func (c *Cloud) dropTemporary(ctx context.Context, req cloud.CreateVolumeRequest) {
	if snap, err := c.findTemporary(ctx, req); err == nil && snap != nil {
		c.drop(ctx, snap)
	}
}

// drop removes a temporary snapshot, also when the call's context has ended. What fails again and again is left to the
// repeat of the call and the sweep.
func (c *Cloud) drop(ctx context.Context, snap *compute.Snapshot) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if err := c.ops.Repeat(ctx, func() error { return c.DeleteSnapshot(ctx, cloud.SnapshotID(snap.GetId())) }); err != nil {
		c.log.Warn("a temporary snapshot is left; it is removed later", zap.String("snapshot_id", snap.GetId()), zap.Error(err))
	}
}

func (c *Cloud) isTemporary(s *compute.Snapshot) bool {
	return s.GetLabels()[labelTemporary] != "" && c.owner.MadeHere(s.GetLabels())
}

// Sweep removes temporary snapshots of this cluster that no call can still need: old ones of clones that were
// broken off and never asked for again. One from which a disk is being made stays for as long as that takes, and so
// does one that a call of this process has.
func (c *Cloud) Sweep(ctx context.Context) error {
	all, err := c.allSnapshots(ctx, budget.List, "")
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s *compute.Snapshot) bool { return !c.isTemporary(s) })
	found, swept := len(all), 0
	all = slices.DeleteFunc(all, func(s *compute.Snapshot) bool {
		return s.GetStatus() == compute.Snapshot_CREATING || time.Since(s.GetCreatedAt().AsTime()) < c.orphanAge
	})
	defer func() { c.ops.Temporary(found - swept) }()
	if len(all) == 0 {
		return nil
	}
	sources, err := c.beingCopied(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, s := range all {
		if sources[s.GetId()] || c.cloning.Has(s.GetName()) || swept+len(failed) == maxSwept {
			continue
		}
		if err := c.deleteSnapshot(ctx, cloud.SnapshotID(s.GetId()), budget.List); err != nil {
			failed = append(failed, err)
			continue
		}
		swept++
		c.log.Info("removed the temporary snapshot of a clone that was broken off", zap.String("snapshot_id", s.GetId()))
	}
	return errors.Join(failed...)
}

// beingCopied are the snapshots that disks are being made from.
func (c *Cloud) beingCopied(ctx context.Context) (map[string]bool, error) {
	disks, err := c.allDisks(ctx)
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
