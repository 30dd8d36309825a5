package block

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// remainder is the state of a volume that is being deleted.
type remainder struct {
	vol   *Volume // nil: there is none
	locks string  // read where a request was refused
	sent  bool
}

// DeleteVolume deletes a volume.
func (b *Verbs) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	if !b.traits.VolumeID(id) {
		return nil
	}
	_, err := b.Remove(ctx, Removal{Name: "delete " + b.VolumeKey(id), ID: id, Priority: budget.Write})
	return err
}

// TakeBack deletes by its id what a failed create has left, and returns the cause; fault.Uncertain if the deletion fails. If the outcome of
// the create is unknown, it deletes nothing, because the volume may still become whole and be found.
func (b *Verbs) TakeBack(ctx context.Context, id cloud.VolumeID, why error) error {
	if fault.Of(why) == fault.Uncertain {
		return why
	}
	if err := b.DeleteVolume(ctx, id); err != nil {
		return fmt.Errorf("%w: %s is left: %w: %w", fault.Uncertain, b.VolumeKey(id), err, why)
	}
	return why
}

// Removal is the deletion of one volume.
type Removal struct {
	// Name is the prefix of errors. Removals with the same name are the same change.
	Name     string
	ID       cloud.VolumeID
	Priority budget.Priority
	// Only, if not nil, decides by a read right before the request whether the volume is deleted.
	Only func(v *Volume) bool
}

// Remove deletes a volume, and reports whether it existed.
func (b *Verbs) Remove(ctx context.Context, r Removal) (removed bool, err error) {
	sent := false
	rest, err := ops.Run(ctx, b.ops, ops.Op[remainder]{
		Name: r.Name, Kind: "delete", Object: b.VolumeKey(r.ID), Priority: r.Priority,
		Lease: unless(b.traits.KeepsAttached && r.Only == nil), Settle: !b.traits.ShowsChanges,
		Submit: func(ctx context.Context, w *ops.Write) (remainder, string, error) {
			sent = true
			operation, err := b.api.Delete(ctx, w, r.ID)
			return remainder{sent: true}, operation, err
		},
		State: func(ctx context.Context) (rest remainder, err error) {
			rest.vol, err = b.api.Volume(ctx, r.ID, r.Priority)
			if err == nil && rest.vol != nil && sent && b.traits.Locks != nil {
				rest.locks = b.traits.Locks(ctx, r.ID)
			}
			return rest, err
		},
		Decide: func(rest remainder, settled bool, refusal error) error {
			if refusal == nil && r.Only != nil && rest.vol != nil && !r.Only(rest.vol) {
				return nil
			}
			return b.decideDelete(rest, settled, refusal)
		},
	})
	return rest.sent, err
}

// decideDelete decides about a delete that was refused, or with a Lease not sent yet; see ops.Op.Decide.
func (b *Verbs) decideDelete(rest remainder, settled bool, refusal error) error {
	v := rest.vol
	because := func(why error) error {
		if refusal == nil {
			return why
		}
		return fmt.Errorf("%w: %w", why, refusal)
	}
	switch {
	case v == nil:
		return nil
	case len(v.AttachedTo) > 0 && (settled || refusal == nil):
		return because(fmt.Errorf("it is attached to %s; it can be deleted when it is detached: %w", b.machineKey(v.AttachedTo[0]), fault.VolumeInUse))
	case rest.locks != "":
		return because(fmt.Errorf("it has the lock %s, which has to be removed first: %w", rest.locks, fault.VolumeInUse))
	case refusal != nil && fault.Of(v.Hindered) == fault.Precondition:
		return because(v.Hindered)
	case refusal != nil && v.Hindered != nil && !v.busy(): // which may explain it, and need not last
		return because(fmt.Errorf("%w: %w", fault.Busy, v.Hindered))
	}
	return because(fault.Busy) // what was in the way has ended
}
