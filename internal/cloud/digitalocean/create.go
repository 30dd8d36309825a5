package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/digitalocean/godo"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateVolume creates a volume. A blank volume needs one write and is ready with its answer.
func (c *Cloud) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q", req.Name)
	body, zones, err := c.createBody(req)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	// Names are unique per region only. So the volume of an earlier call is looked for if there are several regions, which is rare, and
	// before a clone, which takes long.
	if len(zones) > 1 || zones[0] != c.region || req.Source.Volume != "" {
		if err := c.nameIsFree(ctx, req, zones); err != nil {
			return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
		}
	}
	if req.Source.Volume != "" {
		made, err := c.clones.Clone(ctx, req, func(ctx context.Context, snap snapshot) (cloud.Volume, error) {
			return c.restoreCopy(ctx, req, body, zones, snap)
		})
		if err != nil {
			return cloud.Volume{}, err
		}
		return c.fit(ctx, req, made)
	}
	vol, err := c.createIn(ctx, doing, body, zones)
	if err != nil {
		return cloud.Volume{}, err
	}
	return c.fit(ctx, req, volumeOf(vol))
}

// createBody checks a request and returns the body of the create, without a request to the cloud.
func (c *Cloud) createBody(req cloud.CreateVolumeRequest) (body godo.VolumeCreateRequest, zones []string, err error) {
	zones, err = c.CheckCreate(req, c.Capabilities(), c.region)
	switch {
	case err != nil:
		return body, nil, err
	case len(req.Parameters) > 0:
		return body, nil, fmt.Errorf("unknown parameter %q: %w", req.Parameters[0].Name, fault.InvalidArgument)
	}
	words, err := c.userWords(req.Tags)
	return godo.VolumeCreateRequest{
		Name:          c.cloudName(req.Name),
		Description:   c.newRecord(req).line(),
		SizeGigaBytes: max(block.GiB(req.Size), 1),
		SnapshotID:    string(req.Source.Snapshot),
		Tags:          words,
	}, zones, err
}

// createIn creates the volume in the first region that can serve it.
func (c *Cloud) createIn(ctx context.Context, doing string, body godo.VolumeCreateRequest, zones []string) (*volume, error) {
	return block.InZones(zones, func(zone string) (*volume, error) {
		body.Region = zone
		vol, err := c.create(ctx, doing, body)
		a := api.AnswerOf(err)
		if a == nil || !a.Refused() || a.Status == http.StatusConflict || fault.Of(err) == fault.Busy {
			return vol, err
		}
		kind := error(fault.NoZone)
		switch serves, why := c.serves(ctx, body, zone); {
		case why != nil:
			kind = why
		case serves && a.Says(textLimit):
			kind = fault.Exhausted
		case serves && !a.Says(textRegion):
			kind = fault.InvalidArgument
		}
		return nil, fmt.Errorf("%s in %s: %w: %w", doing, zone, kind, err)
	})
}

// create sends a create. If the token may not write tags, it sends it again without the cluster's tag: the record in the description has
// the cluster too. It never leaves out a tag that a user has requested.
func (c *Cloud) create(ctx context.Context, doing string, body godo.VolumeCreateRequest) (*volume, error) {
	vol, err := c.createOnce(ctx, doing, body)
	if !c.mayDropTags(err, body.Tags) {
		return vol, tagsRefused(err, body.Tags)
	}
	body.Tags = nil
	return c.createOnce(ctx, doing, body)
}

// mayDropTags reports whether a refusal may be only about the cluster's tag.
func (c *Cloud) mayDropTags(err error, words []string) bool {
	if !lacksScope(err) || len(words) != 1 || !strings.HasPrefix(words[0], tags.Cluster) {
		return false
	}
	c.tagless.Do(func() {
		c.log.Warn("volumes and snapshots are made without the cluster's tag: the token may lack the scope tag:create", zap.Error(err))
	})
	return true
}

// tagsRefused adds to a refusal which scope the tags need.
func tagsRefused(err error, words []string) error {
	if lacksScope(err) && len(words) > 0 {
		return fmt.Errorf("%w, and for the tags %s the scope tag:create", err, strings.Join(words, ", "))
	}
	return err
}

// lacksScope reports whether the token lacks a scope, as opposed to one that the cloud does not know.
func lacksScope(err error) bool {
	a := api.AnswerOf(err)
	return a != nil && a.Status == http.StatusForbidden && fault.Of(err) == fault.Denied
}

// createOnce sends one create.
func (c *Cloud) createOnce(ctx context.Context, doing string, body godo.VolumeCreateRequest) (*volume, error) {
	name := fmt.Sprintf("%s of %d GiB in %s", doing, body.SizeGigaBytes, body.Region)
	if body.SnapshotID != "" {
		name += " from snapshot " + body.SnapshotID
	}
	return block.Create(ctx, c.Verbs, name, body.Name, func(ctx context.Context, w *ops.Write) (*volume, cloud.VolumeID, string, error) {
		made, err := one(ctx, api.Call{Write: w, Has: []string{"volume"}}, func(ctx context.Context) (*volume, *godo.Response, error) {
			return c.sdk.Storage.CreateVolume(ctx, &body)
		})
		switch {
		case err != nil:
			return nil, "", "", err
		case !objectID(made.ID):
			return nil, "", "", fmt.Errorf("%w: the cloud's answer names no volume", fault.Uncertain)
		}
		c.names.Put(cloud.VolumeID(made.ID), made.Name)
		return made, cloud.VolumeID(made.ID), "", nil
	})
}

// serves reports whether a region that refused a create could have served it, because it has volumes and the snapshot. An error is about
// the snapshot, which may be gone, or about the read.
func (c *Cloud) serves(ctx context.Context, body godo.VolumeCreateRequest, zone string) (bool, error) {
	if body.SnapshotID != "" {
		snap, err := c.readSnapshot(ctx, cloud.SnapshotID(body.SnapshotID))
		if err != nil || !slices.Contains(snap.Regions, zone) {
			return false, err
		}
	}
	regions, err := c.regions.Get(ctx, struct{}{})
	return regions[zone], err
}

// fit grows a copied volume to the requested size, because the cloud creates it with the size of its source. A copy that cannot grow stays,
// because another controller may have found it by its name; the outcome is uncertain, and a repeat continues here.
func (c *Cloud) fit(ctx context.Context, req cloud.CreateVolumeRequest, made cloud.Volume) (cloud.Volume, error) {
	if req.Limit > 0 && made.Size > req.Limit { // it fits no controller's request
		return cloud.Volume{}, c.TakeBack(ctx, made.ID,
			fmt.Errorf("create volume %q: its source makes it %s, more than the limit %s: %w", req.Name, made.Size, req.Limit, fault.OutOfRange))
	}
	if made.Size >= req.Size {
		return made, nil
	}
	exp, err := c.ExpandVolume(ctx, made.ID, req.Size)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("create volume %q: volume %s exists and has %s so far, the next attempt goes on from there: %w: %w",
			req.Name, made.ID, made.Size, fault.Uncertain, err)
	}
	made.Size = exp.Size
	return made, nil
}

// nameIsFree returns fault.Conflict if a volume in one of the request's regions has its name, or the volume of an earlier call in another
// region.
func (c *Cloud) nameIsFree(ctx context.Context, req cloud.CreateVolumeRequest, zones []string) error {
	same, err := c.named(ctx, c.cloudName(req.Name))
	if err != nil {
		return err
	}
	for _, vol := range same {
		ours := c.madeFor(req.Name, &vol)
		if !ours && !slices.Contains(zones, regionOf(&vol)) {
			continue
		}
		if ours && req.Source.Volume != "" {
			c.clones.DropFor(ctx, req) // an earlier call may have ended before it came to that
		}
		return fmt.Errorf("volume %s in %s has the name %s: %w", vol.ID, regionOf(&vol), vol.Name, fault.Conflict)
	}
	return nil
}
