package block

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// tidyTimeout is the time limit for deleting a temporary snapshot after its call has ended.
const tidyTimeout = 30 * time.Second

// Through clones volumes in a cloud that can copy only through snapshots. The name of the temporary snapshot depends on the request only,
// so a repeat finds it; without a repeat a sweep deletes it.
type Through[S any] struct {
	*Leftovers

	// Name returns the name of the temporary snapshot of a request.
	Name func(request string) string
	// ID returns the id of a snapshot.
	ID func(S) cloud.SnapshotID
	// Make creates the temporary snapshot of a request. If its name is taken, Find returns the snapshot of an earlier call, if any.
	Make func(ctx context.Context, req cloud.CreateVolumeRequest) (S, error)
	Find func(ctx context.Context, req cloud.CreateVolumeRequest) (snap S, found bool, err error)
	// Whole waits until a found snapshot can be restored; nil: every snapshot can be at once.
	Whole  func(ctx context.Context, snap S) (S, error)
	Delete func(ctx context.Context, id cloud.SnapshotID, p budget.Priority) error
}

// Clone creates a volume from the request's source volume. restore creates it from the temporary snapshot.
func (t *Through[S]) Clone(ctx context.Context, req cloud.CreateVolumeRequest, restore func(ctx context.Context, snap S) (cloud.Volume, error)) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q as a copy of volume %s", req.Name, req.Source.Volume)
	defer t.Begin(t.Name(req.Name))()
	snap, err := t.take(ctx, req)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	vol, err := restore(ctx, snap)
	switch fault.Of(err) {
	case fault.Uncertain, fault.Unavailable, fault.Busy:
		return cloud.Volume{}, err // the repeat needs the snapshot
	case fault.NotFound:
		// The snapshot existed just before: another controller deleted it after the same clone, or after a failed attempt.
		return cloud.Volume{}, fmt.Errorf("%s: %w: its temporary snapshot was removed: %w", doing, fault.Unavailable, err)
	default:
		t.Drop(ctx, snap) // the copy is whole, or will never be
		return vol, err
	}
}

// take creates the temporary snapshot, or finds that of an earlier call.
func (t *Through[S]) take(ctx context.Context, req cloud.CreateVolumeRequest) (S, error) {
	snap, err := t.Make(ctx, req)
	switch fault.Of(err) {
	case fault.Conflict, fault.Precondition, fault.Exhausted:
	default:
		return snap, err
	}
	found, is, findErr := t.Find(ctx, req)
	switch {
	case findErr != nil:
		return snap, fmt.Errorf("%w: %w", fault.Unavailable, findErr)
	case is && t.Whole != nil:
		return t.Whole(ctx, found)
	case is:
		return found, nil
	case fault.Of(err) == fault.Conflict:
		return snap, fmt.Errorf("%w: the name of its temporary snapshot is taken by another one: %s", fault.Precondition, err.Error())
	}
	return snap, err
}

// DropFor deletes the temporary snapshot of an earlier call for the same clone.
func (t *Through[S]) DropFor(ctx context.Context, req cloud.CreateVolumeRequest) {
	if snap, found, err := t.Find(ctx, req); err == nil && found {
		t.Drop(ctx, snap)
	}
}

// Drop deletes a temporary snapshot, also when the call's context has ended. If that keeps failing, a repeat of the call or a sweep
// deletes it.
func (t *Through[S]) Drop(ctx context.Context, snap S) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if err := t.ops.Repeat(ctx, func() error { return t.Delete(ctx, t.ID(snap), budget.Write) }); err != nil {
		t.log.Warn("a temporary snapshot is left; it is removed later", zap.String("snapshot_id", string(t.ID(snap))), zap.Error(err))
	}
}

// Leftover returns a temporary snapshot as a Leftover.
func (t *Through[S]) Leftover(snap S, name string, created time.Time, kept bool) Leftover {
	return Leftover{
		ID: string(t.ID(snap)), Name: name, Age: time.Since(created), Kept: kept,
		Remove: func(ctx context.Context) (bool, error) {
			err := t.Delete(ctx, t.ID(snap), budget.List)
			return err == nil, err
		},
	}
}
