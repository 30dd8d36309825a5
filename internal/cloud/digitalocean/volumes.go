package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// readVolume reads a volume; fault.NotFound if there is none.
func (c *Cloud) readVolume(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*volume, error) {
	is := map[string]string{"volume.id": strconv.Quote(string(id))}
	vol, err := one(ctx, api.Call{Doing: "read volume " + string(id), Priority: p, Is: is}, func(ctx context.Context) (*volume, *godo.Response, error) {
		return c.sdk.Storage.GetVolume(ctx, string(id))
	})
	if err != nil {
		return nil, err
	}
	c.names.Put(cloud.VolumeID(vol.ID), vol.Name)
	return vol, nil
}

// findVolume reads a volume; nil if there is none.
func (c *Cloud) findVolume(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*volume, error) {
	vol, err := c.readVolume(ctx, id, p)
	if api.NotFound(err) {
		c.names.Invalidate(id)
		return nil, nil //nolint:nilnil // "there is none" is an answer here, and every caller asks for it
	}
	return vol, err
}

// volumes returns the list of volumes with a name, or of all ("").
func (c *Cloud) volumes(doing, name string, p budget.Priority) listOf[volume] {
	return listOf[volume]{
		doing: doing, key: "volumes", priority: p,
		call: func(ctx context.Context, opt *godo.ListOptions) ([]volume, *godo.Response, error) {
			return c.sdk.Storage.ListVolumes(ctx, &godo.ListVolumeParams{Name: name, ListOptions: opt})
		},
	}
}

// volumePage reads all volumes of the account with one request; nil if they do not fit on one page.
func (c *Cloud) volumePage(ctx context.Context) (map[cloud.VolumeID]*block.Volume, error) {
	if c.many.Load() {
		return nil, nil
	}
	list, m, err := readPage(ctx, c.volumes("read several volumes", "", budget.Read), 1, perPage)
	if err != nil || !m.last {
		c.many.Store(err == nil)
		return nil, err
	}
	found := make(map[cloud.VolumeID]*block.Volume, len(list))
	for i := range list {
		found[cloud.VolumeID(list[i].ID)] = stateOf(&list[i])
		c.names.Put(cloud.VolumeID(list[i].ID), list[i].Name)
	}
	return found, nil
}

// named returns the volumes with exactly this name in all regions, oldest first.
func (c *Cloud) named(ctx context.Context, name string) ([]volume, error) {
	same, err := pages(c.volumes("find volumes named "+name, name, budget.Read)).All(ctx)
	if err != nil {
		return nil, err
	}
	same = slices.DeleteFunc(same, func(v volume) bool { return v.Name != name })
	slices.SortFunc(same, func(a, b volume) int {
		if order := a.CreatedAt.Compare(b.CreatedAt); order != 0 {
			return order
		}
		return strings.Compare(a.ID, b.ID)
	})
	for i := range same {
		c.names.Put(cloud.VolumeID(same[i].ID), same[i].Name)
	}
	return same, nil
}

// ListVolumes returns one page of all volumes in all regions that the token may see, in the cloud's order. The attacher compares the list
// with the attachments.
func (c *Cloud) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	all := pages(c.volumes("list volumes", "", budget.List))
	part, next, err := all.Listing("volumes of "+c.cluster, func(v volume) string { return v.ID }).Part(ctx, page)
	if err == nil && page.Token == "" && (page.Most == 0 || page.Most > perPage) {
		c.many.Store(len(part) > perPage)
	}
	if err != nil {
		return cloud.VolumeList{}, fmt.Errorf("list volumes: %w", err)
	}
	list := cloud.VolumeList{Next: next}
	for i := range part {
		list.Volumes = append(list.Volumes, volumeOf(&part[i]))
	}
	return list, nil
}

// readRegions reads which regions have volumes. Whether a region is available is about new droplets only.
func (c *Cloud) readRegions(ctx context.Context, _ struct{}) (map[string]bool, error) {
	list, err := pages(listOf[godo.Region]{doing: "read which regions have volumes", key: "regions", call: c.sdk.Regions.List}).All(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, r := range list {
		all[r.Slug] = slices.Contains(r.Features, "storage")
	}
	return all, nil
}

// volumeOf returns a volume as a cloud.Volume.
func volumeOf(v *volume) cloud.Volume {
	words := wordsOf(v)
	vol := cloud.Volume{
		ID:      cloud.VolumeID(v.ID),
		Name:    v.Name,
		Size:    cloud.Bytes(v.SizeGigaBytes) * cloud.GiB,
		Created: v.CreatedAt.UTC(),
		Zone:    regionOf(v),
		Source:  tags.SourceOf(words),
		Device:  deviceOf(v.Name),
		Tags:    tags.Read(words),
		Mark:    ownerOf(v),
	}
	for _, id := range v.DropletIDs {
		vol.AttachedTo = append(vol.AttachedTo, nodeID(id))
	}
	slices.Sort(vol.AttachedTo)
	return vol
}

func regionOf(v *volume) string {
	if v.Region == nil {
		return ""
	}
	return v.Region.Slug
}

// deviceOf returns how a droplet identifies the volume with this name, which the disk reports.
func deviceOf(name string) cloud.Device {
	return cloud.Device{Name: profile.DigitalOcean.LinkPrefix + name, Serial: name}
}
