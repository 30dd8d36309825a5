package block

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// landing is a cloud whose detach names no machine, with one volume that shows another controller's attach to m when that has ended.
type landing struct {
	API // what is not asked for

	until             time.Time // when that attach ends
	unseen            error     // of reads of the running operations
	unread            error     // of reads of the volume
	detached, deleted int
}

func (l *landing) Volume(context.Context, cloud.VolumeID, budget.Priority) (*Volume, error) {
	if l.unread != nil || l.detached > 0 || time.Now().Before(l.until) {
		return at(), l.unread
	}
	return at("m"), nil
}

func (l *landing) Detach(context.Context, *ops.Write, cloud.VolumeID, cloud.NodeID) (string, error) {
	l.detached++
	return "", nil
}

func (l *landing) Delete(context.Context, *ops.Write, cloud.VolumeID) (string, error) {
	l.deleted++
	return "", nil
}

func (l *landing) Running(_ context.Context, object string) ([]ops.Operation, error) {
	if l.unseen != nil || !time.Now().Before(l.until) {
		return nil, l.unseen
	}
	return []ops.Operation{{Object: object, ID: "attach"}}, nil
}

func (l *landing) Outcome(context.Context, ops.Operation) (ops.Outcome, error) {
	return ops.Outcome{Done: !time.Now().Before(l.until)}, nil
}

// A1, A12: in a cloud that does not show a running attach, a detach that names no machine waits for its end before the read that
// decides, and is sent only if the volume is on its machine then. A deletion that the cloud does not check is sent only if it is free.
func TestALeaseWhereVolumesDoNotShowChanges(t *testing.T) {
	busy := fmt.Errorf("%w: the cloud is busy", fault.Busy)
	for name, tc := range map[string]struct {
		edit              func(l *landing)
		do                func(ctx context.Context, b *Verbs) error
		want              error
		detached, deleted int
	}{
		"a detach from where it lands":      {nil, func(ctx context.Context, b *Verbs) error { return b.Detach(ctx, "v", "m") }, nil, 1, 0},
		"a detach from another machine":     {nil, func(ctx context.Context, b *Verbs) error { return b.Detach(ctx, "v", "n") }, nil, 0, 0},
		"a detach from any machine":         {nil, func(ctx context.Context, b *Verbs) error { return b.Detach(ctx, "v", "") }, nil, 1, 0},
		"a deletion":                        {nil, func(ctx context.Context, b *Verbs) error { return b.DeleteVolume(ctx, "v") }, fault.VolumeInUse, 0, 0},
		"a deletion of what is free":        {func(l *landing) { l.detached = 1 }, func(ctx context.Context, b *Verbs) error { return b.DeleteVolume(ctx, "v") }, nil, 1, 1},
		"operations that cannot be read":    {func(l *landing) { l.unseen = fault.Denied }, func(ctx context.Context, b *Verbs) error { return b.Detach(ctx, "v", "m") }, fault.Denied, 0, 0},
		"operations, and the cloud is busy": {func(l *landing) { l.unseen = busy }, func(ctx context.Context, b *Verbs) error { return b.Detach(ctx, "v", "m") }, fault.Busy, 0, 0},
		"the volume, and the cloud is busy": {func(l *landing) { l.unread = busy }, func(ctx context.Context, b *Verbs) error { return b.Detach(ctx, "v", "m") }, fault.Busy, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := &landing{}
			simulated(t, l, Traits{}, func(t *testing.T, b *Verbs) {
				l.until = time.Now().Add(5 * time.Second)
				if tc.edit != nil {
					tc.edit(l)
				}
				if err := tc.do(t.Context(), b); fault.Of(err) != fault.Of(tc.want) || fault.ReasonOf(err) != fault.ReasonOf(tc.want) {
					t.Errorf("the outcome is %v, want %v", err, tc.want)
				}
				if l.detached != tc.detached || l.deleted != tc.deleted {
					t.Errorf("%d detaches and %d deletions were sent, want %d and %d", l.detached, l.deleted, tc.detached, tc.deleted)
				}
			})
		})
	}
}

// C1: what a failed create has left is deleted, and nothing that may still become whole.
func TestWhatAFailedCreateHasLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		attached  bool
		why, want error
		deleted   int
	}{
		"it is deleted":              {false, fault.OutOfRange, fault.OutOfRange, 1},
		"it cannot be deleted":       {true, fault.OutOfRange, fault.Uncertain, 0},
		"the outcome is not known":   {false, fault.Uncertain, fault.Uncertain, 0},
		"it failed without a reason": {false, fault.Unavailable, fault.Unavailable, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := &landing{detached: 1}
			if tc.attached {
				l.detached = 0
			}
			simulated(t, l, Traits{}, func(t *testing.T, b *Verbs) {
				if err := b.TakeBack(t.Context(), "v", tc.why); fault.Of(err) != fault.Of(tc.want) || l.deleted != tc.deleted {
					t.Errorf("TakeBack = %v after %d deletions, want %v after %d", err, l.deleted, tc.want, tc.deleted)
				}
			})
		})
	}
}
