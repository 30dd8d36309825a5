package linode

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// copying is a request for a copy of a volume or of a snapshot, to be a volume or a snapshot.
type copying struct {
	// The request has the source and what the copy may be. Its name is the copy's until that is complete.
	cloud.CreateVolumeRequest

	// body has the label and the tags of the complete copy, and a volume's size and encryption.
	body newVolume
	// begin, if not nil, is called before a copy is begun, and prevents it with an error.
	begin func(ctx context.Context) error
	// detached: the source has to be detached when the copy begins.
	detached bool
}

// clone creates a copy. The cloud makes the copy with the size of its source and without tags. So clone makes it
// with a temporary label that only this request has, grows it, and then sets its final label and tags in one change, which makes it
// the request's volume or snapshot. After an interruption a repeat finds it by one of the labels.
func (c *Cloud) clone(ctx context.Context, p copying) (*volume, error) {
	body := p.body
	if err := c.labelIsFree(ctx, body.Label); err != nil {
		return nil, err
	}
	source, err := c.source(ctx, p)
	if err != nil {
		return nil, err
	}
	label := c.temporaryLabel(p.Name, source.ID)
	defer c.clones.Begin(label)()
	v, err := c.copyOf(ctx, p, source, label)
	if err != nil {
		return nil, err
	}
	if err := c.keep(ctx, v, body.Tags); err != nil {
		return nil, err
	}
	if v.Size < body.Size {
		if _, err := c.ExpandVolume(ctx, volumeID(v.ID), cloud.Bytes(body.Size)*cloud.GiB); err != nil {
			// Another controller may be working on the copy too, so it is not deleted; a repeat continues here.
			return nil, fmt.Errorf("volume %d is the copy and has not the size yet, the next attempt goes on from there: %w: %w", v.ID, fault.Uncertain, err)
		}
	}
	return c.withTags(body.Tags, func(words []string) (*volume, error) {
		body.Tags = words
		return c.finish(ctx, v.ID, body)
	})
}

// source returns the source volume, or an error if it cannot be copied for this request.
func (c *Cloud) source(ctx context.Context, p copying) (*volume, error) {
	req, body := p.CreateVolumeRequest, p.body
	n := api.Number(req.Source.Volume) // checked with the body, like the other
	if req.Source.Snapshot != "" {
		n, _ = snapshotNumber(req.Source.Snapshot)
	}
	v, err := c.findVolume(ctx, n, budget.Read)
	// An attach is not waited for: a copy needs no device, and a Linode that is off may have none for hours.
	if err == nil && !gone(v) && pending(v) {
		v, err = c.settled(ctx, n)
	}
	switch {
	case err != nil:
		return nil, err
	case gone(v) || isSnapshot(v) != (req.Source.Snapshot != ""):
		return nil, fmt.Errorf("%w: there is no volume %s%s to copy", fault.NotFound, req.Source.Volume, req.Source.Snapshot)
	case v.Status == statusBroken:
		return nil, fmt.Errorf("%w: %w", fault.VolumeDamaged, errBroken(v))
	case len(req.Zones) > 0 && !slices.Contains(req.Zones, v.Region):
		return nil, fmt.Errorf("volume %d is in %s and cannot be copied to any of %q: %w", n, v.Region, req.Zones, fault.SourceElsewhere)
	case req.Limit > 0 && cloud.Bytes(v.Size)*cloud.GiB > req.Limit:
		return nil, fmt.Errorf("volume %d has %d GiB, so its copy has more than the limit %s: %w", n, v.Size, req.Limit, fault.OutOfRange)
	case body.Encryption != "" && body.Encryption != v.Encryption:
		return nil, fmt.Errorf("a copy is encrypted if its source is, and volume %d has encryption %q; use a class with %s: \"%t\", or one that leaves it out: %w",
			n, v.Encryption, ParamEncrypted, v.Encryption == encrypted, fault.InvalidArgument)
	}
	return v, nil
}

// copyOf makes the copy with its temporary label, or takes over that of an earlier call.
func (c *Cloud) copyOf(ctx context.Context, p copying, source *volume, label string) (*volume, error) {
	v, err := c.unfinished(ctx, label)
	if err == nil && v == nil && p.begin != nil {
		err = p.begin(ctx)
	}
	if err == nil && v == nil {
		v, err = c.sendClone(ctx, source, label, p.detached)
	}
	if err != nil {
		return nil, err
	}
	if v.Status == statusActive {
		return v, nil
	}
	id := v.ID
	switch v, err = c.settled(ctx, id); {
	case err != nil:
		return nil, fmt.Errorf("volume %d is being made: %w: %w", id, fault.Uncertain, err)
	case gone(v):
		return nil, errSwept(id)
	case v.Status == statusBroken:
		return nil, c.TakeBack(ctx, volumeID(id), errBroken(v))
	}
	return v, nil
}

// duplicate is the state that explains a refused copy.
type duplicate struct {
	made   *volume // with the temporary label
	source *volume
}

// sendClone makes a copy and returns it when it is complete. detached sends the request only right after a read that shows the source
// detached.
func (c *Cloud) sendClone(ctx context.Context, source *volume, label string, detached bool) (*volume, error) {
	op := ops.Op[duplicate]{
		Name: fmt.Sprintf("copy volume %d as %s", source.ID, label), Kind: "clone", Object: "label " + label, Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (duplicate, string, error) {
			v, err := c.sendVolume(ctx, w, func(ctx context.Context) (*volume, error) { return c.sdk.CloneVolume(ctx, source.ID, label) })
			if err != nil {
				return duplicate{}, "", err
			}
			v.Status = statusActive // by the end of the operation
			return duplicate{made: v}, operation(v.ID, toBeActive, source.Size), nil
		},
		State: func(ctx context.Context) (state duplicate, err error) {
			if state.made, err = c.unfinished(ctx, label); err == nil {
				state.source, err = c.findVolume(ctx, source.ID, budget.Read)
			}
			return state, err
		},
		Decide: func(state duplicate, _ bool, refusal error) error { return decideClone(state, detached, refusal) },
	}
	if detached {
		op.Lease = block.Lease
	}
	state, err := ops.Run(ctx, c.ops, op)
	if broken := (*brokenError)(nil); errors.As(err, &broken) {
		return nil, c.TakeBack(ctx, volumeID(broken.id), err)
	}
	return state.made, err
}

// decideClone decides about a copy that was refused, or with a Lease not sent yet; see ops.Op.Decide.
func decideClone(state duplicate, detached bool, refusal error) error {
	because := func(why error) error {
		if refusal == nil {
			return why
		}
		return fmt.Errorf("%w: %w", why, refusal)
	}
	switch {
	case state.made != nil:
		return nil // another controller made it meanwhile
	case gone(state.source):
		return because(fmt.Errorf("%w: there is no volume to copy any more", fault.NotFound))
	case detached && linodeOf(state.source) != 0:
		return because(fmt.Errorf("volume %d is attached to Linode %d, and the class demands %s: %s; scale the workload to zero, and the snapshot is made when "+
			"the VolumeAttachment is gone: %w", state.source.ID, linodeOf(state.source), ParamConsistency, ConsistencyDetached, fault.VolumeInUse))
	case state.source.Status != statusActive:
		return because(fmt.Errorf("volume %d is in the state %q: %w", state.source.ID, state.source.Status, fault.Unavailable))
	case refusal == nil:
		return fault.Busy
	case aboutLabel(refusal):
		return fmt.Errorf("%w: %w", fault.Busy, refusal) // what had it is gone
	default:
		return refusal
	}
}

// unfinished returns the copy with the temporary label, nil if there is none.
func (c *Cloud) unfinished(ctx context.Context, label string) (*volume, error) {
	same, err := c.labelled(ctx, label)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(same, func(v volume) bool { return !gone(&v) })
	switch {
	case at >= 0:
		return &same[at], nil
	case len(same) > 0: // it has the label until it is gone
		return nil, errSwept(same[0].ID)
	}
	return nil, nil //nolint:nilnil // "there is none" is an answer here
}

// errSwept is the error for a copy that a sweep is deleting while this call would continue with it.
func errSwept(id int) error {
	return fmt.Errorf("volume %d, the copy, is being removed as an orphan of an earlier attempt; the next attempt starts over: %w", id, fault.Unavailable)
}

// finish sets the label and the tags of the request on a copy.
func (c *Cloud) finish(ctx context.Context, id int, body newVolume) (*volume, error) {
	same, err := ops.Run(ctx, c.ops, ops.Op[[]volume]{
		Name: fmt.Sprintf("label volume %d %s", id, body.Label), Kind: "update", Object: c.VolumeKey(volumeID(id)), Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) ([]volume, string, error) {
			v, err := c.update(ctx, w, id, linodego.VolumeUpdateOptions{Label: body.Label, Tags: &body.Tags})
			if err != nil {
				return nil, "", err
			}
			return []volume{*v}, "", nil
		},
		State: func(ctx context.Context) ([]volume, error) { return c.labelled(ctx, body.Label) },
		Decide: func(same []volume, _ bool, refusal error) error {
			if len(same) == 0 && aboutLabel(refusal) {
				return fmt.Errorf("%w: %w", fault.Busy, refusal) // what had it is gone
			} else if len(same) == 0 {
				return refusal
			}
			return fmt.Errorf("%w: %w", taken(same), refusal)
		},
	})
	switch {
	case err == nil && gone(&same[0]):
		return nil, errSwept(id) // a label can be given to what is being deleted
	case err == nil:
		return &same[0], nil
	case fault.Of(err) != fault.Conflict || len(same) == 0:
		return nil, fmt.Errorf("%w: %w", fault.Uncertain, err) // the copy is there
	case slices.ContainsFunc(same, func(v volume) bool { return v.ID == id }):
		return nil, err // another controller was quicker; a volume that is being deleted may have the label too
	}
	return nil, c.TakeBack(ctx, volumeID(id), err)
}
