package yandex

import (
	"context"
	"fmt"
	"slices"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// tidyTimeout bounds the removal of a temporary snapshot after its call has ended.
	tidyTimeout = 30 * time.Second
	// mostSwept bounds how many are removed in one go.
	mostSwept = 20
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
	same, err := c.named(budget.WithPriority(ctx, budget.Read), c.cloudName(req.Name))
	if err != nil {
		return err
	}
	for _, d := range same {
		if d.GetStatus() == compute.Disk_DELETING {
			continue
		}
		if c.madeFor(req.Name, d.GetLabels()) {
			if _, err := c.whenReady(ctx, d); err != nil {
				return err
			}
			c.dropTemporary(ctx, req) // an earlier call may have ended before it came to that
		}
		return fmt.Errorf("disk %s has the name %s: %w", d.GetId(), d.GetName(), fault.Conflict)
	}
	return nil
}

// temporary makes the snapshot for a clone, or finds the one that an earlier call made.
func (c *Cloud) temporary(ctx context.Context, req cloud.CreateVolumeRequest) (*compute.Snapshot, error) {
	labels, err := c.labels(req.Name, nil, cloud.Source{}, cloud.Tag{Key: labelTemporary, Value: "clone"})
	if err != nil {
		return nil, err
	}
	snap, err := c.takeSnapshot(ctx, taking{
		doing: "make its temporary snapshot", what: keyTemporary, request: req.Name, whole: true,
		body: &compute.CreateSnapshotRequest{
			FolderId: c.folder, DiskId: string(req.Source.Volume), Name: c.temporaryName(req.Name),
			Description: "Created by cloudblock-csi, which removes it too", Labels: labels,
		},
	})
	if fault.Of(err) != fault.Conflict {
		return snap, err
	}
	found, findErr := c.findTemporary(ctx, req)
	switch {
	case findErr != nil:
		return nil, fmt.Errorf("%w: %w", fault.Unavailable, findErr)
	case found == nil:
		return nil, fmt.Errorf("%w: the name of its temporary snapshot is held by another one: %w", fault.Precondition, answerless(err))
	}
	return c.wholeSnapshot(ctx, found)
}

// temporaryThere is snapshotThere for a temporary snapshot. While one goes it may come back, if its removal fails, so
// another is not made before its end.
func (c *Cloud) temporaryThere(ctx context.Context, id cloud.SnapshotID, failure error) (bool, error) {
	there, err := c.snapshotThere(ctx, id, failure)
	if there || err != nil {
		return there, err
	}
	snap, err := c.snapshot(ctx, id)
	switch {
	case fault.Of(err) == fault.NotFound:
		return false, nil
	case err != nil:
		return false, err
	case snap.GetStatus() == compute.Snapshot_DELETING:
		return false, fmt.Errorf("an earlier temporary snapshot %s is being removed: %w", id, fault.Unavailable)
	}
	return snap.GetStatus() == compute.Snapshot_READY, nil
}

// wholeSnapshot returns a snapshot that an earlier call has begun when it can be restored.
func (c *Cloud) wholeSnapshot(ctx context.Context, snap *compute.Snapshot) (*compute.Snapshot, error) {
	if snap.GetStatus() == compute.Snapshot_CREATING {
		ch := change{watch: watch{snapshot: cloud.SnapshotID(snap.GetId()), kind: kindSnapshot}}
		seen, err := c.await(ctx, ch, func(s sight) bool { return s.snapshot.GetStatus() != compute.Snapshot_CREATING })
		if err != nil {
			return nil, fmt.Errorf("snapshot %s is being made: %w: %w", snap.GetId(), fault.Unavailable, err)
		}
		snap = seen.snapshot
	}
	switch snap.GetStatus() {
	case compute.Snapshot_READY:
		return snap, nil
	case compute.Snapshot_ERROR:
		c.drop(ctx, snap) // nothing can be made from it, and it holds the name of the next one
	}
	return nil, fmt.Errorf("snapshot %s, which an earlier call has begun, is %s: %w", snap.GetId(), snap.GetStatus(), fault.Unavailable)
}

// answerless is an error whose kind is not to be seen any more.
func answerless(err error) error {
	if a := answerOf(err); a != nil {
		return a
	}
	return fmt.Errorf("%v", err) //nolint:errorlint // its kind is what it must not carry
}

// findTemporary returns the temporary snapshot of a request, or nil.
func (c *Cloud) findTemporary(ctx context.Context, req cloud.CreateVolumeRequest) (*compute.Snapshot, error) {
	same, err := c.snapshotsNamed(ctx, c.temporaryName(req.Name))
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(same, func(s *compute.Snapshot) bool {
		return c.isTemporary(s) && c.madeFor(req.Name, s.GetLabels()) && s.GetSourceDiskId() == string(req.Source.Volume)
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

// drop removes a temporary snapshot, also when the call's context has ended. What fails is left to the
// repeat and the sweep.
func (c *Cloud) drop(ctx context.Context, snap *compute.Snapshot) {
	priority := budget.PriorityOf(ctx)
	ctx, cancel := context.WithTimeout(budget.WithPriority(c.work.Life(), priority), tidyTimeout)
	defer cancel()
	if err := c.DeleteSnapshot(ctx, cloud.SnapshotID(snap.GetId())); err != nil {
		c.log.Warn("a temporary snapshot is left; it is removed later", zap.String("snapshot_id", snap.GetId()), zap.Error(err))
	}
}

func (c *Cloud) isTemporary(s *compute.Snapshot) bool {
	return s.GetLabels()[labelTemporary] != "" && c.madeHere(s.GetLabels())
}

// sweep removes left-over temporary snapshots, now and then.
func (c *Cloud) sweep() {
	if err := c.Sweep(c.work.Life()); err != nil && c.work.Life().Err() == nil {
		c.log.Warn("could not look for left-over temporary snapshots", zap.Error(err))
	}
}

// Sweep removes temporary snapshots of this cluster that no call can still need: old ones of clones that were
// broken off and never asked for again. One from which a disk is being made stays, whoever has begun that, for as
// long as it takes, and so does one that a call of this process has.
func (c *Cloud) Sweep(ctx context.Context) error {
	all, err := c.allSnapshots(ctx, budget.List, "")
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s *compute.Snapshot) bool {
		return s.GetStatus() == compute.Snapshot_CREATING || !c.isTemporary(s) || time.Since(s.GetCreatedAt().AsTime()) < c.leftOld
	})
	if len(all) == 0 {
		return nil
	}
	sources, err := c.beingCopied(ctx)
	if err != nil {
		return err
	}
	swept := 0
	for _, s := range all {
		if sources[s.GetId()] || c.cloning.Has(s.GetName()) || swept == mostSwept {
			continue
		}
		swept++
		if err := c.DeleteSnapshot(budget.WithPriority(ctx, budget.List), cloud.SnapshotID(s.GetId())); err != nil {
			return err
		}
		c.log.Info("removed a temporary snapshot that a broken-off clone had left", zap.String("snapshot_id", s.GetId()))
	}
	return nil
}

// beingCopied are the snapshots that disks are being made from.
func (c *Cloud) beingCopied(ctx context.Context) (map[string]bool, error) {
	disks, err := c.allDisks(ctx, budget.List)
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
