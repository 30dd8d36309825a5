package block

import (
	"context"
	"fmt"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Modification is a change of a volume's tags in a cloud that replaces all of them with one request.
type Modification struct {
	ID cloud.VolumeID
	// Tags are those to be set, in the cloud's form. Modifications with the same ones are the same change.
	Tags []cloud.Tag
	// Max is the maximum number of tags of a volume; 0: no limit.
	Max int
	// Merge returns the sorted tags that a volume is to have, which has these.
	Merge func(has []cloud.Tag) []cloud.Tag
	// Send sends the request. It returns the id of the operation, or "".
	Send func(ctx context.Context, w *ops.Write, all []cloud.Tag) (operation string, err error)
}

// Modify sets tags on a volume. The request is sent within Lease after a read: a change by another client in between would be lost.
func (b *Verbs) Modify(ctx context.Context, m Modification) error {
	if !b.traits.VolumeID(m.ID) {
		return b.noSuchID("modify ", m.ID)
	}
	var all []cloud.Tag // of the last read, with those to be set
	_, err := ops.Run(ctx, b.ops, ops.Op[*Volume]{
		Name: fmt.Sprintf("put tags %q on %s", m.Tags, b.VolumeKey(m.ID)), Kind: "modify", Object: b.VolumeKey(m.ID), Priority: budget.Write, Lease: Lease,
		Submit: func(ctx context.Context, w *ops.Write) (*Volume, string, error) {
			operation, err := m.Send(ctx, w, all)
			return nil, operation, err
		},
		State: func(ctx context.Context) (*Volume, error) {
			v, err := b.api.Volume(ctx, m.ID, budget.Read)
			if v != nil {
				all = m.Merge(v.Tags)
			}
			return v, err
		},
		Decide: func(v *Volume, _ bool, refusal error) error {
			switch {
			case v == nil:
				return fmt.Errorf("%w: there is no such %s", fault.NotFound, b.traits.VolumeWord)
			case slices.Equal(all, v.Tags):
				return nil
			case m.Max > 0 && len(all) > m.Max:
				return fmt.Errorf("it would have %d tags, the cloud takes %d: %w", len(all), m.Max, fault.InvalidArgument)
			case refusal == nil:
				return fault.Busy
			case fault.Of(refusal) == fault.InvalidArgument:
				return refusal
			}
			return fmt.Errorf("%w: %w", fault.Busy, refusal)
		},
	})
	return err
}
