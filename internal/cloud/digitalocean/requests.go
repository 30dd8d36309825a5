package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

var traits = block.Traits{
	VolumeWord: "volume", MachineWord: "droplet",
	VolumeID:   objectID[cloud.VolumeID],
	MachineID:  api.IsNumber[cloud.NodeID],
	SnapshotID: objectID[cloud.SnapshotID], Zone: slug.MatchString,
	Largest:            maxSize * cloud.GiB,
	DetachNamesMachine: true, KeepsAttached: true,
	GrowsOnMachine: true,
	NoGrowthAttached: func(refusal error) bool {
		a := api.AnswerOf(refusal)
		return a != nil && a.Says(textNoResize)
	},
}

// statusArchived is the status of a droplet that the SDK has no constant for.
const statusArchived = "archive"

// Attach attaches a volume to a droplet. The disk reports the volume's name, which is read before the droplet is locked.
func (c *Cloud) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	if traits.VolumeID(id) && traits.MachineID(node) { // else it is refused at once
		if _, err := c.nameOf(ctx, id); err != nil {
			return cloud.Device{}, fmt.Errorf("attach %s to droplet %s: %w", c.VolumeKey(id), node, err)
		}
	}
	return c.Verbs.Attach(ctx, id, node)
}

// requests implements block.API.
type requests struct{ c *Cloud }

func (r requests) Volume(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*block.Volume, error) {
	v, err := r.c.findVolume(ctx, id, p)
	if v == nil || err != nil {
		return nil, err
	}
	return stateOf(v), nil
}

// stateOf returns a volume as a block.Volume.
func stateOf(v *volume) *block.Volume { return &block.Volume{Volume: volumeOf(v)} }

// Find looks in all regions. Of two volumes in different ones it returns the older one.
func (r requests) Find(ctx context.Context, request string) (*block.Volume, error) {
	same, err := r.c.named(ctx, r.c.cloudName(request))
	if err != nil {
		return nil, err
	}
	v, err := block.Find(request, same, func(v volume) bool { return r.c.madeFor(request, &v) },
		func(v volume) string { return "volume " + v.ID + " (see its description)" })
	return stateOf(&v), err
}

func (r requests) Machine(ctx context.Context, id cloud.NodeID) (*block.Machine, error) {
	is := map[string]string{"droplet.id": string(id)}
	d, err := one(ctx, api.Call{Doing: "read droplet " + string(id), Priority: budget.Read, Is: is}, func(ctx context.Context) (*droplet, *godo.Response, error) {
		return r.c.sdk.Droplets.Get(ctx, api.Number(id))
	})
	switch {
	case api.NotFound(err):
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	case err != nil:
		return nil, err
	}
	m := &block.Machine{Used: len(d.VolumeIDs), Slots: profile.DigitalOcean.Slots}
	if d.Locked || d.Status == statusArchived {
		m.Hindered = fmt.Errorf("the droplet is locked or archived (status %q), and takes no changes; if that does not end, see the control panel or ask "+
			"the cloud's support: %w", d.Status, fault.Unavailable)
	}
	if d.Region != nil {
		m.Zone = d.Region.Slug
	}
	return m, nil
}

func (r requests) Attach(ctx context.Context, w *ops.Write, id cloud.VolumeID, to cloud.NodeID) (cloud.Device, string, error) {
	name, err := r.c.nameOf(ctx, id) // as a rule it is known
	if err != nil {
		return cloud.Device{}, "", err
	}
	started, err := r.action(ctx, w, func(ctx context.Context) (*action, *godo.Response, error) {
		return r.c.sdk.StorageActions.Attach(ctx, string(id), api.Number(to))
	})
	if a := api.AnswerOf(err); a != nil && a.Status == http.StatusForbidden && fault.Of(err) == fault.Exhausted {
		err = fmt.Errorf("%w: %w", fault.Unavailable, err) // a quota of the account
	}
	return deviceOf(name), started, err
}

func (r requests) Detach(ctx context.Context, w *ops.Write, id cloud.VolumeID, from cloud.NodeID) (string, error) {
	return r.action(ctx, w, func(ctx context.Context) (*action, *godo.Response, error) {
		return r.c.sdk.StorageActions.DetachByDropletID(ctx, string(id), api.Number(from))
	})
}

func (r requests) Resize(ctx context.Context, w *ops.Write, v *block.Volume, size cloud.Bytes) (string, error) {
	return r.action(ctx, w, func(ctx context.Context) (*action, *godo.Response, error) {
		return r.c.sdk.StorageActions.Resize(ctx, string(v.ID), int(block.GiB(size)), v.Zone)
	})
}

func (r requests) Delete(ctx context.Context, w *ops.Write, id cloud.VolumeID) (string, error) {
	err := none(ctx, w, func(ctx context.Context) (*godo.Response, error) {
		return r.c.sdk.Storage.DeleteVolume(ctx, string(id))
	})
	if err == nil {
		r.c.names.Invalidate(id)
	}
	return "", err
}

// action calls the SDK to start an action of a volume, and returns the action's id.
func (r requests) action(ctx context.Context, w *ops.Write, call func(context.Context) (*action, *godo.Response, error)) (string, error) {
	started, err := one(ctx, api.Call{Write: w, Has: []string{"action.id"}}, call)
	if err != nil {
		return "", err
	}
	return strconv.Itoa(started.ID), nil
}
