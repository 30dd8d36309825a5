package block

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// remainder is what is known of a volume that is to go.
type remainder struct {
	vol   *Volume // nil: there is none
	locks string  // read where a request was refused
	sent  bool
}

// DeleteVolume removes a volume.
func (b *Verbs) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	if !b.traits.VolumeID(id) {
		return nil
	}
	_, err := b.Remove(ctx, Removal{Name: "delete " + b.VolumeKey(id), ID: id, Priority: budget.Write})
	return err
}

// Removal says which volume is deleted.
type Removal struct {
	// Name begins errors. Two removals of one name are the same.
	Name     string
	ID       cloud.VolumeID
	Priority budget.Priority
	// Only, unless it is nil, says of the volume as it is right before the request whether it is to go. It needs a Lease.
	Only func(v *Volume) bool
}

// Remove deletes a volume, and reports whether it was there.
func (b *Verbs) Remove(ctx context.Context, r Removal) (removed bool, err error) {
	if r.Only != nil && b.traits.Lease == 0 {
		return false, fmt.Errorf("%s: only as it is: %w", r.Name, fault.Unsupported)
	}
	sent := false
	rest, err := ops.Run(ctx, b.ops, ops.Op[remainder]{
		Name: r.Name, Kind: "delete", Object: b.VolumeKey(r.ID), Priority: r.Priority, Lease: b.traits.Lease,
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

// decideDelete says what the state means for a delete that is refused, or not sent yet (a Lease).
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
		return because(fmt.Errorf("it is attached to %s; it can be deleted when it is detached: %w", b.MachineKey(v.AttachedTo[0]), fault.VolumeInUse))
	case rest.locks != "":
		return because(fmt.Errorf("it has the lock %s, which has to be removed first: %w", rest.locks, fault.VolumeInUse))
	case refusal != nil && fault.Of(v.Hindered) == fault.Precondition:
		return because(v.Hindered)
	}
	return because(fault.Busy) // what was in the way has ended
}
