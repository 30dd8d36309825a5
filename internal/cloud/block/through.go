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

// tidyTimeout bounds the removal of a temporary snapshot after its call has ended.
const tidyTimeout = 30 * time.Second

// Through makes clones in a cloud that copies through snapshots only. There is a temporary one for a while, whose name follows from
// the request's: a repeat finds it, and where none comes a sweep does.
type Through[S any] struct {
	*Leftovers

	// Name is that of the temporary snapshot of a request.
	Name func(request string) string
	// ID is that of a snapshot.
	ID func(S) cloud.SnapshotID
	// Make makes the temporary snapshot of a request. Where its name is taken, Find may find the one that an earlier call made.
	Make func(ctx context.Context, req cloud.CreateVolumeRequest) (S, error)
	Find func(ctx context.Context, req cloud.CreateVolumeRequest) (snap S, found bool, err error)
	// Whole waits until one that was found can be restored; nil: each that is shown can.
	Whole  func(ctx context.Context, snap S) (S, error)
	Delete func(ctx context.Context, id cloud.SnapshotID, p budget.Priority) error
}

// Clone makes a volume from the request's source volume. restore makes it from the temporary snapshot.
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
		// The source was there a moment ago. Another controller made the same clone, or failed to.
		return cloud.Volume{}, fmt.Errorf("%s: %w: its temporary snapshot was removed: %w", doing, fault.Unavailable, err)
	default:
		t.Drop(ctx, snap) // the copy is whole, or will never be
		return vol, err
	}
}

// take makes the temporary snapshot, or finds the one that an earlier call made.
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

// DropFor removes what an earlier call for the same clone has left.
func (t *Through[S]) DropFor(ctx context.Context, req cloud.CreateVolumeRequest) {
	if snap, found, err := t.Find(ctx, req); err == nil && found {
		t.Drop(ctx, snap)
	}
}

// Drop removes a temporary snapshot, also when the call's context has ended. What fails again and again is left to the
// repeat of the call and the sweep.
func (t *Through[S]) Drop(ctx context.Context, snap S) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if err := t.ops.Repeat(ctx, func() error { return t.Delete(ctx, t.ID(snap), budget.Write) }); err != nil {
		t.log.Warn("a temporary snapshot is left; it is removed later", zap.String("snapshot_id", string(t.ID(snap))), zap.Error(err))
	}
}

// Leftover is a temporary snapshot for a Sweep.
func (t *Through[S]) Leftover(snap S, name string, created time.Time, kept bool) Leftover {
	return Leftover{
		ID: string(t.ID(snap)), Name: name, Age: time.Since(created), Kept: kept,
		Remove: func(ctx context.Context) (bool, error) {
			err := t.Delete(ctx, t.ID(snap), budget.List)
			return err == nil, err
		},
	}
}
