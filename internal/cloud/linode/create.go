package linode

import (
	"context"
	"fmt"
	"slices"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	encrypted   = "enabled"
	unencrypted = "disabled"
)

// newVolume is the body of a create. The cloud chooses the fields that are left out.
type newVolume = linodego.VolumeCreateOptions

// CreateVolume creates a volume and waits until it is active.
func (c *Cloud) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q", req.Name)
	body, zones, err := c.createBody(req)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	var v *volume
	if !req.Source.Blank() {
		v, err = c.clone(ctx, copying{CreateVolumeRequest: req, body: body})
	} else {
		v, err = c.createIn(ctx, body, zones)
	}
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	return c.volumeOf(v), nil
}

// createBody checks a request and returns the body of the create, without a request to the cloud.
func (c *Cloud) createBody(req cloud.CreateVolumeRequest) (body newVolume, zones []string, err error) {
	body = newVolume{Label: c.labelOf(req.Name), Size: max(int(block.GiB(req.Size)), minSize)}
	zones, err = c.CheckCreate(req, c.Capabilities(), c.region)
	switch {
	case err != nil:
		return body, nil, err
	case req.Limit > 0 && cloud.Bytes(body.Size)*cloud.GiB > req.Limit:
		return body, nil, fmt.Errorf("a volume has %d GiB at least, which is more than the limit %s: %w", body.Size, req.Limit, fault.OutOfRange)
	}
	for _, p := range req.Parameters {
		switch {
		case p.Name != ParamEncrypted:
			return body, nil, fmt.Errorf("unknown parameter %q: %w", p.Name, fault.InvalidArgument)
		case p.Value == "true":
			body.Encryption = encrypted
		case p.Value == "false":
			body.Encryption = unencrypted
		default:
			return body, nil, fmt.Errorf("parameter %s: neither true nor false: %w", p.Name, fault.InvalidArgument)
		}
	}
	body.Tags, err = c.tagsOf(req)
	return body, zones, err
}

// createIn creates a blank volume in the first region that can serve it.
func (c *Cloud) createIn(ctx context.Context, body newVolume, zones []string) (*volume, error) {
	// Labels are unique over all regions, as far as is known. Still, an earlier call may have created the volume in another region, so
	// createIn looks for it.
	if len(zones) > 1 || zones[0] != c.region {
		if err := c.labelIsFree(ctx, body.Label); err != nil {
			return nil, err
		}
	}
	return block.InZones(zones, func(zone string) (*volume, error) {
		body.Region = zone
		v, err := c.withTags(body.Tags, func(words []string) (*volume, error) {
			body.Tags = words
			return c.create(ctx, body)
		})
		if a := api.AnswerOf(err); a != nil && a.Refused() {
			err = c.explainCreate(ctx, body, err)
		}
		return v, err
	})
}

// errRegion is the error for a region that cannot serve a create.
var errRegion = fmt.Errorf("%w in this region", fault.NoZone)

// create sends a create, and waits until the volume is active.
func (c *Cloud) create(ctx context.Context, body newVolume) (*volume, error) {
	doing := fmt.Sprintf("with %d GiB in %s, encryption %q", body.Size, body.Region, body.Encryption)
	return block.Create(ctx, c.Verbs, doing, body.Label, func(ctx context.Context, w *ops.Write) (*volume, cloud.VolumeID, string, error) {
		v, err := c.sendVolume(ctx, w, func(ctx context.Context) (*volume, error) { return c.sdk.CreateVolume(ctx, body) })
		if err != nil {
			return nil, "", "", err
		}
		return v, volumeID(v.ID), operation(v.ID, toBeActive, body.Size), nil
	})
}

// explainCreate reads why a create was refused.
func (c *Cloud) explainCreate(ctx context.Context, body newVolume, refusal error) error {
	same, err := c.labelled(ctx, body.Label)
	var regions map[string]capabilities
	if err == nil && len(same) == 0 {
		regions, err = c.regions.Get(ctx, struct{}{})
	}
	if err != nil {
		return fmt.Errorf("%w: why is unknown: %w: %w", fault.Unavailable, err, refusal)
	}
	return refusedCreate(body, same, regions[body.Region], refusal)
}

// refusedCreate returns why a create was refused, by the volumes with its label and the capabilities of its region.
func refusedCreate(body newVolume, same []volume, can capabilities, refusal error) error {
	switch {
	case len(same) > 0:
		return fmt.Errorf("%w: %w", taken(same), refusal)
	case aboutLabel(refusal):
		return fmt.Errorf("no volume has the label %s now: %w: %w", body.Label, fault.Busy, refusal)
	case fault.Of(refusal) != fault.InvalidArgument:
		return refusal
	case !can.volumes:
		return fmt.Errorf("%s lacks the capability %q: %w: %w", body.Region, hasVolumes, errRegion, refusal)
	case body.Encryption == encrypted && !can.encryption:
		return fmt.Errorf("%s lacks the capability %q: %w: %w", body.Region, hasEncryption, errRegion, refusal)
	case about(refusal, "region"): // the region is one, so it is full, or closed to the account
		return fmt.Errorf("%s takes no more volumes: %w: %w", body.Region, errRegion, refusal)
	default:
		return refusal
	}
}

// labelIsFree returns fault.Conflict if a volume has the label.
func (c *Cloud) labelIsFree(ctx context.Context, label string) error {
	same, err := c.labelled(ctx, label)
	if err == nil && len(same) > 0 {
		return taken(same)
	}
	return err
}

// taken is the error for a label that volumes have.
func taken(by []volume) error {
	for i := range by {
		if v := &by[i]; !gone(v) {
			return fmt.Errorf("volume %d in %s has the label %s: %w", v.ID, v.Region, v.Label, fault.Conflict)
		}
	}
	return fmt.Errorf("volume %d is being deleted, and has the label %s until then: %w", by[0].ID, by[0].Label, fault.Unavailable)
}

// aboutLabel reports whether the cloud refused the label. It is always valid, so a volume has it or had it.
func aboutLabel(refusal error) bool { return about(refusal, "label") }

// about reports whether a refusal names this field of the request.
func about(refusal error, field string) bool {
	a := api.AnswerOf(refusal)
	return a != nil && slices.Contains(a.Fields, field)
}

// capabilities are the capabilities of a region.
type capabilities struct{ volumes, encryption bool }

// The API's names of the needed capabilities of a region.
const (
	hasVolumes    = linodego.CapabilityBlockStorage
	hasEncryption = "Block Storage Encryption"
)

// readRegions reads the capabilities of the regions.
func (c *Cloud) readRegions(ctx context.Context, _ struct{}) (map[string]capabilities, error) {
	list, err := pages(listOf[linodego.Region]{doing: "read which regions have volumes", call: c.sdk.ListRegions}).All(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]capabilities{}
	for _, r := range list {
		all[r.ID] = capabilities{volumes: slices.Contains(r.Capabilities, hasVolumes), encryption: slices.Contains(r.Capabilities, hasEncryption)}
	}
	return all, nil
}
