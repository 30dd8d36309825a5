package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateVolume makes a volume. A blank one is one write and ready with its answer.
func (c *Cloud) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q", req.Name)
	if err := checkCreate(req); err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	body, err := c.createBody(req)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	zones := c.zones(req)
	if len(zones) == 0 {
		return cloud.Volume{}, fmt.Errorf("%s: none of %q is a region: %w", doing, req.Zones, fault.Exhausted)
	}
	// A name is taken once per region only. Where an earlier call may have made the volume elsewhere, and
	// before the long way of a clone is taken, it has to be looked for. Usually there is one region.
	if len(zones) > 1 || zones[0] != c.region || req.Source.Volume != "" {
		if err := c.nameIsFree(ctx, req, zones); err != nil {
			return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
		}
	}
	if req.Source.Volume != "" {
		return c.clone(ctx, req, body)
	}
	vol, err := c.createIn(ctx, doing, body, zones)
	if err != nil {
		return cloud.Volume{}, err
	}
	return c.fit(ctx, req, vol)
}

// checkCreate refuses what can be refused without a request.
func checkCreate(req cloud.CreateVolumeRequest) error {
	switch {
	case req.Name == "":
		return fmt.Errorf("it has no name: %w", fault.InvalidArgument)
	case len(req.Parameters) > 0:
		return fmt.Errorf("unknown parameter %q: %w", req.Parameters[0].Name, fault.InvalidArgument)
	case gib(req.Size) > mostSize:
		return fmt.Errorf("%s is more than %d GiB, the largest volume: %w", req.Size, mostSize, fault.OutOfRange)
	case req.Source.Snapshot != "" && !objectID(req.Source.Snapshot):
		return fmt.Errorf("snapshot %.80q: %w: no snapshot has such an id", req.Source.Snapshot, fault.NotFound)
	case req.Source.Volume != "" && !objectID(req.Source.Volume):
		return fmt.Errorf("source volume %.80q: %w: no volume has such an id", req.Source.Volume, fault.NotFound)
	default:
		return nil
	}
}

func (c *Cloud) createBody(req cloud.CreateVolumeRequest) (godo.VolumeCreateRequest, error) {
	words, err := c.owner.Words(req.Name, req.Tags, req.Source)
	return godo.VolumeCreateRequest{
		Name:          c.cloudName(req.Name),
		Description:   "Created by cloudblock-csi",
		SizeGigaBytes: max(gib(req.Size), 1),
		SnapshotID:    string(req.Source.Snapshot),
		Tags:          words,
	}, err
}

// zones are the request's that could be regions at all.
func (c *Cloud) zones(req cloud.CreateVolumeRequest) []string {
	if len(req.Zones) == 0 {
		return []string{c.region}
	}
	return slices.DeleteFunc(slices.Clone(req.Zones), func(zone string) bool { return !slug.MatchString(zone) })
}

// createIn creates in the first of the regions that can serve. Another one is tried only when the refusal
// turns out to be about the region.
func (c *Cloud) createIn(ctx context.Context, doing string, body godo.VolumeCreateRequest, zones []string) (*godo.Volume, error) {
	for i, zone := range zones {
		body.Region = zone
		vol, err := c.create(ctx, doing, body)
		if a := answerOf(err); a == nil || !refused(err) || a.Status == http.StatusConflict || fault.Of(err) == fault.Busy {
			return vol, err
		}
		serves, why := c.serves(ctx, body, zone)
		switch {
		case why != nil:
			return nil, fmt.Errorf("%w: %w", why, err)
		case serves:
			return nil, fmt.Errorf("%s in %s: %w: %w", doing, zone, fault.InvalidArgument, err)
		case i == len(zones)-1:
			return nil, fmt.Errorf("%s: none of the regions %s can serve it: %w: %w", doing, strings.Join(zones, ", "), fault.Exhausted, err)
		}
	}
	return nil, fmt.Errorf("%s: no region is left: %w", doing, fault.Exhausted)
}

// create sends one create. The request of a lost answer may land, so nothing is repeated here.
func (c *Cloud) create(ctx context.Context, doing string, body godo.VolumeCreateRequest) (*godo.Volume, error) {
	made := make(chan *godo.Volume, 1)
	err := c.write(ctx, "name "+body.Name, doing, func(ctx context.Context) error {
		vol, _, err := c.api.Storage.CreateVolume(ctx, &body)
		if err == nil && (vol == nil || !objectID(vol.ID)) {
			err = fmt.Errorf("%w: the cloud's answer names no volume", fault.Uncertain)
		}
		if err == nil {
			c.known.saw(vol, true)
			made <- vol
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-made, nil
}

// serves says, of a region that refused a create, whether it could have served it: it has volumes, and it
// has the snapshot. The error is about the snapshot, which may be gone, or the look itself.
func (c *Cloud) serves(ctx context.Context, body godo.VolumeCreateRequest, zone string) (bool, error) {
	if body.SnapshotID != "" {
		snap, err := c.snapshot(ctx, cloud.SnapshotID(body.SnapshotID))
		if err != nil || !slices.Contains(snap.Regions, zone) {
			return false, err
		}
	}
	regions, err := c.regions.Get(ctx, struct{}{})
	return regions[zone], err
}

// readRegions reads which regions have volumes.
func (c *Cloud) readRegions(ctx context.Context, _ struct{}) (map[string]bool, error) {
	ctx = budget.WithPriority(ctx, budget.Read)
	all := map[string]bool{}
	err := paged(c.api.Regions.List).Each(ctx, func(list []godo.Region) {
		for _, r := range list {
			all[r.Slug] = r.Available && slices.Contains(r.Features, "storage")
		}
	})
	if err != nil {
		return nil, readError("look which regions have volumes", err)
	}
	return all, nil
}

// fit makes a volume that was copied as large as asked for: the cloud makes it as large as its source was. A
// copy that cannot grow stays, because another controller may have found it by its name: the outcome is
// open, and the same request goes on from here.
func (c *Cloud) fit(ctx context.Context, req cloud.CreateVolumeRequest, vol *godo.Volume) (cloud.Volume, error) {
	made := volumeOf(vol)
	if req.Limit > 0 && made.Size > req.Limit {
		err := fmt.Errorf("create volume %q: its source makes it %s, more than the limit %s: %w", req.Name, made.Size, req.Limit, fault.OutOfRange)
		return cloud.Volume{}, c.remove(ctx, made.ID, err) // it fits no controller's request
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

// remove deletes what this call has made, by its id, and returns why; fault.Uncertain where that fails.
func (c *Cloud) remove(ctx context.Context, id cloud.VolumeID, why error) error {
	if err := c.DeleteVolume(ctx, id); err != nil {
		return fmt.Errorf("%w: volume %s is left: %w: %w", fault.Uncertain, id, err, why)
	}
	return why
}

// nameIsFree answers fault.Conflict where the request's name is held in one of its regions, or by the
// volume that an earlier call made for it in any other.
func (c *Cloud) nameIsFree(ctx context.Context, req cloud.CreateVolumeRequest, zones []string) error {
	same, err := c.named(ctx, c.cloudName(req.Name))
	if err != nil {
		return err
	}
	for _, vol := range same {
		if !c.owner.MadeFor(req.Name, vol.Tags) && !slices.Contains(zones, regionOf(&vol)) {
			continue
		}
		if req.Source.Volume != "" && c.owner.MadeFor(req.Name, vol.Tags) {
			c.dropTemporary(ctx, req) // an earlier call may have ended before it came to that
		}
		return fmt.Errorf("volume %s in %s has the name %s: %w", vol.ID, regionOf(&vol), vol.Name, fault.Conflict)
	}
	return nil
}

// named returns the volumes with exactly this name in all regions, oldest first.
func (c *Cloud) named(ctx context.Context, name string) (same []godo.Volume, err error) {
	ctx = budget.WithPriority(ctx, budget.Read)
	err = paged(func(ctx context.Context, opts *godo.ListOptions) ([]godo.Volume, *godo.Response, error) {
		return c.api.Storage.ListVolumes(ctx, &godo.ListVolumeParams{Name: name, ListOptions: opts})
	}).Each(ctx, func(list []godo.Volume) { same = append(same, list...) })
	if err != nil {
		return nil, readError("look for volumes named "+name, err)
	}
	same = slices.DeleteFunc(same, func(v godo.Volume) bool { return v.Name != name })
	slices.SortFunc(same, func(a, b godo.Volume) int {
		if order := a.CreatedAt.Compare(b.CreatedAt); order != 0 {
			return order
		}
		return strings.Compare(a.ID, b.ID)
	})
	for i := range same {
		c.known.saw(&same[i], false)
	}
	return same, nil
}

// FindVolume returns the volume made under this request name. Should there be two, in two regions, the
// older one is it.
func (c *Cloud) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	missing := fmt.Errorf("find volume %q: %w", name, fault.NotFound)
	if name == "" {
		return cloud.Volume{}, missing
	}
	same, err := c.named(ctx, c.cloudName(name))
	if err != nil {
		return cloud.Volume{}, err
	}
	at := slices.IndexFunc(same, func(v godo.Volume) bool { return c.owner.MadeFor(name, v.Tags) })
	switch {
	case at >= 0:
		return volumeOf(&same[at]), nil
	case len(same) > 0:
		return cloud.Volume{}, fmt.Errorf("find volume %q: %s has its name %s and was made for something else (see its tags): %w",
			name, same[0].ID, same[0].Name, fault.Conflict)
	default:
		return cloud.Volume{}, missing
	}
}

// GetVolume returns the present state of a volume.
func (c *Cloud) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	if !objectID(id) {
		return cloud.Volume{}, fmt.Errorf("volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	}
	vol, err := c.states.Get(ctx, id)
	if err != nil {
		return cloud.Volume{}, err
	}
	return volumeOf(vol), nil
}

// DeleteVolume removes a volume.
func (c *Cloud) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	if !objectID(id) {
		return nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	doing := "delete volume " + string(id)
	var unexplained remote.Puzzles
	err := c.machines.Do(ctx, queue.Change{Send: func(ctx context.Context) error {
		err := c.write(ctx, volumeKey(id), doing, func(ctx context.Context) error {
			_, err := c.api.Storage.DeleteVolume(ctx, string(id))
			return err
		})
		if !refused(err) || fault.Of(err) == fault.Busy {
			return err
		}
		return unexplained.Count(c.decideDelete(ctx, id, err))
	}})
	if err != nil {
		return err
	}
	c.known.forget(id)
	return nil
}

// decideDelete says what a refused delete means, when everything that was under way with the volume has ended.
func (c *Cloud) decideDelete(ctx context.Context, id cloud.VolumeID, refusal error) error {
	if fault.Of(refusal) == fault.NotFound {
		return nil
	}
	_, err := c.join(ctx, id)
	var vol *godo.Volume
	if err == nil {
		vol, err = c.look(ctx, id)
	}
	switch {
	case err != nil:
		return errors.Join(err, refusal)
	case vol == nil:
		return nil
	case len(vol.DropletIDs) > 0:
		return fmt.Errorf("it is attached to droplet %d; it can be deleted when it is detached: %w: %w", vol.DropletIDs[0], fault.Precondition, refusal)
	default:
		return fmt.Errorf("%w: %w", fault.Busy, refusal) // it was attached a moment ago
	}
}
