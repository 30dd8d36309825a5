package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

var traits = block.Traits{
	VolumeWord: "volume", MachineWord: "droplet",
	VolumeID: objectID[cloud.VolumeID],
	MachineID: func(id cloud.NodeID) bool {
		_, ok := api.Number(id)
		return ok
	},
	Largest:        maxSize * cloud.GiB,
	GrowsOnMachine: true,
	NoGrowthAttached: func(refusal error) bool {
		a := api.AnswerOf(refusal)
		return a != nil && a.Says(textNoResize)
	},
}

// requests implements block.API.
type requests struct{ c *Cloud }

func (r requests) Volume(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*block.Volume, error) {
	v, err := r.c.findVolume(ctx, id, p)
	if v == nil || err != nil {
		return nil, err
	}
	return &block.Volume{Volume: volumeOf(v)}, nil
}

func (r requests) Machine(ctx context.Context, id cloud.NodeID) (*block.Machine, error) {
	d, err := r.c.findDroplet(ctx, number(id))
	if d == nil || err != nil {
		return nil, err
	}
	m := &block.Machine{Used: len(d.VolumeIDs), Slots: profile.DigitalOcean.Slots}
	if d.Region != nil {
		m.Zone = d.Region.Slug
	}
	return m, nil
}

func (r requests) Attach(ctx context.Context, w *ops.Write, id cloud.VolumeID, to cloud.NodeID) (cloud.Device, string, error) {
	name, err := r.c.nameOf(ctx, id) // which the disk reports; usually it is known
	if err != nil {
		return cloud.Device{}, "", err
	}
	action, err := r.c.startAction(ctx, w, id, map[string]any{"type": "attach", "droplet_id": number(to)})
	if a := api.AnswerOf(err); a != nil && a.Status == http.StatusForbidden && fault.Of(err) == fault.Exhausted {
		err = fmt.Errorf("%w: %w", fault.Unavailable, err) // a quota of the account
	}
	return deviceOf(name), action, err
}

func (r requests) Detach(ctx context.Context, w *ops.Write, id cloud.VolumeID, from cloud.NodeID) (string, error) {
	return r.c.startAction(ctx, w, id, map[string]any{"type": "detach", "droplet_id": number(from)})
}

func (r requests) Resize(ctx context.Context, w *ops.Write, v *block.Volume, size cloud.Bytes) (string, error) {
	return r.c.startAction(ctx, w, v.ID, map[string]any{"type": "resize", "size_gigabytes": block.GiB(size), "region": v.Zone})
}

func (r requests) Delete(ctx context.Context, w *ops.Write, id cloud.VolumeID) (string, error) {
	err := r.c.remove(ctx, w, volumesPath+"/"+string(id))
	if err == nil {
		r.c.seen.forget(id)
	}
	return "", err
}

// number is the id of a droplet, which block has checked.
func number(id cloud.NodeID) int {
	n, _ := api.Number(id)
	return n
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
