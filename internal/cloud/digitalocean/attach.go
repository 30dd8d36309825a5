package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Attach makes the volume a disk of the droplet.
func (c *Cloud) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	onto, ok := api.Number(node)
	switch {
	case !objectID(id):
		return cloud.Device{}, fmt.Errorf("attach volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	case !ok:
		return cloud.Device{}, fmt.Errorf("attach volume %s to %.80q: %w: no droplet has such an id", id, node, fault.NotFound)
	}
	name := fmt.Sprintf("attach volume %s to droplet %d", id, onto)
	called, err := c.nameOf(ctx, id) // for the device's name
	if err != nil {
		return cloud.Device{}, fmt.Errorf("%s: %w", name, err)
	}
	_, err = ops.Run(ctx, c.ops, ops.Op[placement]{
		Name: name, Kind: "attach", Object: volumeKey(id), Machine: dropletKey(onto), Priority: budget.Attach,
		Submit: func(ctx context.Context, w *ops.Write) (placement, string, error) {
			action, err := c.startAction(ctx, w, id, map[string]any{"type": "attach", "droplet_id": onto})
			return placement{}, action, attachError(err)
		},
		State:  func(ctx context.Context) (placement, error) { return c.placement(ctx, id, onto) },
		Decide: decideAttach,
	})
	if err != nil {
		return cloud.Device{}, err
	}
	return deviceOf(called), nil
}

// placement is where a volume is, and the droplet that it is wanted at.
type placement struct {
	vol    *volume  // nil: there is none
	onto   int      // the droplet
	target *droplet // what it is, read where the volume is free; nil: there is none
}

func (c *Cloud) placement(ctx context.Context, id cloud.VolumeID, onto int) (at placement, err error) {
	at.onto = onto
	at.vol, err = c.findVolume(ctx, id)
	if err == nil && at.vol != nil && len(at.vol.DropletIDs) == 0 {
		at.target, err = c.findDroplet(ctx, onto)
	}
	return at, err
}

// decideAttach says what a refused attach means.
func decideAttach(at placement, settled bool, refusal error) error {
	switch {
	case at.vol == nil:
		return fmt.Errorf("%w: there is no such volume: %w", fault.NotFound, refusal)
	case !settled:
		return fmt.Errorf("%w: %w", fault.Busy, refusal) // an attachment that is being undone is none (failure A1)
	case attachedTo(at.vol, at.onto):
		return nil
	case len(at.vol.DropletIDs) > 0:
		return fmt.Errorf("it is attached to droplet %d; it can be attached here when it is detached there: %w: %w",
			at.vol.DropletIDs[0], fault.AttachedElsewhere, refusal)
	case at.target == nil:
		return fmt.Errorf("%w: there is no such droplet: %w", fault.NotFound, refusal)
	case len(at.target.VolumeIDs) >= profile.DigitalOcean.Slots || fault.Of(refusal) == fault.Exhausted:
		return fmt.Errorf("the droplet has no free slot, %d volumes are attached to it: %w: %w", len(at.target.VolumeIDs), fault.NoSlot, refusal)
	case at.target.Region != nil && at.target.Region.Slug != regionOf(at.vol):
		return fmt.Errorf("the volume is in %s and the droplet in %s: %w: %w", regionOf(at.vol), at.target.Region.Slug, fault.WrongZone, refusal)
	}
	// The refusal was about a state that has changed since, or about something that the API does not show.
	return fmt.Errorf("the volume is free and the droplet has a free slot now: %w: %w", fault.Busy, refusal)
}

// attachError keeps fault.Exhausted for slots, which send the pod to another node: a quota of the account is the
// same on all of them.
func attachError(err error) error {
	if a := api.AnswerOf(err); a != nil && a.Status == http.StatusForbidden && fault.Of(err) == fault.Exhausted {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	return err
}

// Detach takes the volume off the droplet, or off whatever droplet.
func (c *Cloud) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	if !objectID(id) {
		return nil // no volume, so it is free
	}
	if node == "" {
		return c.detachAll(ctx, id)
	}
	from, ok := api.Number(node)
	if !ok {
		return nil // a volume is never a disk of what is no droplet
	}
	return c.detach(ctx, id, from)
}

// detachAll takes the volume off whatever it is attached to, or is about to be.
func (c *Cloud) detachAll(ctx context.Context, id cloud.VolumeID) error {
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	for {
		vol, err := ops.Settle(ctx, c.ops, volumeKey(id), func(ctx context.Context) (*volume, error) { return c.findVolume(ctx, id) })
		if err != nil || vol == nil || len(vol.DropletIDs) == 0 {
			return err
		}
		if err := c.detach(ctx, id, vol.DropletIDs[0]); err != nil {
			return err
		}
	}
}

func (c *Cloud) detach(ctx context.Context, id cloud.VolumeID, from int) error {
	_, err := ops.Run(ctx, c.ops, ops.Op[*volume]{
		Name: fmt.Sprintf("detach volume %s from droplet %d", id, from), Kind: "detach",
		Object: volumeKey(id), Machine: dropletKey(from), Priority: budget.Detach,
		Submit: func(ctx context.Context, w *ops.Write) (*volume, string, error) {
			action, err := c.startAction(ctx, w, id, map[string]any{"type": "detach", "droplet_id": from})
			return nil, action, err
		},
		State: func(ctx context.Context) (*volume, error) { return c.findVolume(ctx, id) },
		Decide: func(vol *volume, settled bool, refusal error) error {
			return decideDetach(vol, from, settled, refusal)
		},
	})
	return err
}

// decideDetach says what a refused detach means.
func decideDetach(vol *volume, from int, settled bool, refusal error) error {
	switch {
	case vol == nil:
		return nil
	case !attachedTo(vol, from) && settled:
		return nil // and no attach is under way that could still land
	case attachedTo(vol, from) && fault.Of(refusal) == fault.NotFound:
		// The droplet has gone and the volume's record lags behind it (failure A11).
		return fmt.Errorf("the volume still shows as attached to it; this ends by itself when the droplet is gone: %w: %w",
			fault.Unavailable, refusal)
	default:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	}
}

// startAction sends one of a volume's actions and returns its id.
func (c *Cloud) startAction(ctx context.Context, w *ops.Write, id cloud.VolumeID, body map[string]any) (string, error) {
	var root struct {
		Action action `json:"action"`
	}
	r := api.Request{Method: http.MethodPost, Path: volumesPath + "/" + string(id) + "/actions", Body: body, Write: w}
	switch err := c.api.Do(ctx, r, &root); {
	case err != nil:
		return "", err
	case root.Action.ID <= 0:
		return "", fmt.Errorf("%w: the cloud's answer names no action", fault.Uncertain)
	}
	return strconv.Itoa(root.Action.ID), nil
}

// findDroplet reads a droplet; nil: there is none.
func (c *Cloud) findDroplet(ctx context.Context, id int) (*droplet, error) {
	doing := fmt.Sprintf("read droplet %d", id)
	var root struct {
		Droplet droplet `json:"droplet"`
	}
	err := c.api.Do(ctx, get(doing, dropletsPath+"/"+strconv.Itoa(id), budget.Read), &root)
	switch a := api.AnswerOf(err); {
	case a != nil && a.Status == http.StatusNotFound:
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	case err != nil:
		return nil, err
	case root.Droplet.ID != id:
		return nil, fmt.Errorf("%s: %w: the answer is about something else", doing, fault.Unavailable)
	}
	return &root.Droplet, nil
}

// dropletKey names a droplet in ops.
func dropletKey(id int) string { return "droplet " + strconv.Itoa(id) }
