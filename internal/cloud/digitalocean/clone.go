package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/digitalocean/godo"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// tidyTimeout bounds the removal of a temporary snapshot after its call has ended.
	tidyTimeout = 30 * time.Second
	// maxSwept bounds how many are removed in one go.
	maxSwept = 20
)

// clone makes a volume as a copy of another. The cloud copies through snapshots only, so there is a
// temporary one for a while. Its name follows from the request's, so a repeat finds it, and says that it is
// temporary, so that a sweep does where no repeat comes.
func (c *Cloud) clone(ctx context.Context, req cloud.CreateVolumeRequest, body godo.VolumeCreateRequest) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q as a copy of volume %s", req.Name, req.Source.Volume)
	defer c.cloning.Begin(c.temporaryName(req.Name))()
	snap, err := c.temporary(ctx, req)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	body.SnapshotID = snap.ID
	zones := slices.DeleteFunc(c.zones(req), func(zone string) bool { return !slices.Contains(snap.Regions, zone) })
	if len(zones) == 0 {
		c.drop(ctx, snap)
		return cloud.Volume{}, fmt.Errorf("%s: it is in %q and cannot be copied to any of %q: %w", doing, snap.Regions, c.zones(req), fault.SourceElsewhere)
	}
	vol, err := c.createIn(ctx, doing, body, zones)
	switch fault.Of(err) {
	case fault.None:
		c.drop(ctx, snap) // the copy is whole with the create's answer
		return c.fit(ctx, req, vol)
	case fault.Uncertain, fault.Unavailable, fault.Busy:
		return cloud.Volume{}, err // the repeat needs the snapshot, and would wait 10 minutes for another
	case fault.NotFound:
		// The source was there a moment ago. Another controller made the same clone, or failed to.
		return cloud.Volume{}, fmt.Errorf("%s: %w: its temporary snapshot was removed: %w", doing, fault.Unavailable, err)
	default:
		c.drop(ctx, snap)
		return cloud.Volume{}, err
	}
}

// temporary makes the snapshot for a clone, or finds the one that an earlier call made.
func (c *Cloud) temporary(ctx context.Context, req cloud.CreateVolumeRequest) (*snapshot, error) {
	words, err := c.userWords(nil)
	if err != nil {
		return nil, err
	}
	snap, err := c.takeSnapshot(ctx, req.Source.Volume, c.temporaryName(req.Name), words)
	switch fault.Of(err) {
	case fault.Conflict, fault.Precondition, fault.Exhausted:
		found, findErr := c.findTemporary(ctx, req)
		switch {
		case findErr != nil:
			return nil, fmt.Errorf("%w: %w", fault.Unavailable, findErr)
		case found != nil:
			return found, nil
		case fault.Of(err) == fault.Conflict:
			return nil, fmt.Errorf("%w: the name of its temporary snapshot is held by another volume's: %s", fault.Precondition, err.Error())
		}
	}
	return snap, err
}

// findTemporary returns the temporary snapshot of a request, or nil.
func (c *Cloud) findTemporary(ctx context.Context, req cloud.CreateVolumeRequest) (*snapshot, error) {
	of, err := c.snapshotsOf(ctx, req.Source.Volume)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(of, func(s snapshot) bool { return s.Name == c.temporaryName(req.Name) })
	if at < 0 {
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	}
	return &of[at], nil
}

// dropTemporary removes what an earlier call for the same clone has left.
func (c *Cloud) dropTemporary(ctx context.Context, req cloud.CreateVolumeRequest) {
	if snap, err := c.findTemporary(ctx, req); err == nil && snap != nil {
		c.drop(ctx, snap)
	}
}

// drop removes a temporary snapshot, also when the call's context has ended. What fails again and again is left to the
// repeat of the call and the sweep.
func (c *Cloud) drop(ctx context.Context, snap *snapshot) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if err := c.ops.Repeat(ctx, func() error { return c.DeleteSnapshot(ctx, cloud.SnapshotID(snap.ID)) }); err != nil {
		c.log.Warn("a temporary snapshot is left; it is removed later", zap.String("snapshot_id", snap.ID), zap.Error(err))
	}
}

// Sweep removes temporary snapshots of this cluster that no call can still need: those of clones that were
// broken off and never asked for again.
func (c *Cloud) Sweep(ctx context.Context) error {
	all, err := c.allSnapshots(ctx, budget.List)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s snapshot) bool { return !c.isTemporary(&s) })
	var failed []error
	swept := 0
	for i := range all {
		created, err := time.Parse(time.RFC3339, all[i].Created)
		if err != nil || time.Since(created) < c.orphanAge || c.cloning.Has(all[i].Name) || swept+len(failed) == maxSwept {
			continue
		}
		if err := c.deleteSnapshot(ctx, cloud.SnapshotID(all[i].ID), budget.List); err != nil {
			failed = append(failed, err)
			continue
		}
		swept++
		c.log.Info("removed the temporary snapshot of a clone that was broken off", zap.String("snapshot_id", all[i].ID))
	}
	c.ops.Temporary(len(all) - swept)
	return errors.Join(failed...)
}
