package linode

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// readVolume reads a volume; fault.NotFound if there is none.
func (c *Cloud) readVolume(ctx context.Context, id int, p budget.Priority) (*volume, error) {
	doing := fmt.Sprintf("read volume %d", id)
	v, err := api.Through(ctx, api.Call{Doing: doing, Priority: p, Is: map[string]string{"id": strconv.Itoa(id)}}, func(ctx context.Context) (*volume, error) {
		return c.sdk.GetVolume(ctx, id)
	})
	switch {
	case err != nil:
		return nil, err
	case gone(v):
		return nil, fmt.Errorf("%s: it is being deleted: %w", doing, fault.NotFound)
	}
	c.labels.Put(v.ID, v.Label)
	return v, nil
}

// findVolume reads a volume; nil if there is none.
func (c *Cloud) findVolume(ctx context.Context, id int, p budget.Priority) (*volume, error) {
	v, err := c.readVolume(ctx, id, p)
	if fault.Of(err) == fault.NotFound {
		c.labels.Invalidate(id)
		return nil, nil //nolint:nilnil // "there is none" is an answer here, and every caller asks for it
	}
	return v, err
}

// settled reads a volume when none of its operations is running; nil: there is none.
func (c *Cloud) settled(ctx context.Context, id int) (*volume, error) {
	for { // another controller may begin something before the read
		v, err := ops.Settle(ctx, c.ops, c.VolumeKey(volumeID(id)), func(ctx context.Context) (*volume, error) { return c.findVolume(ctx, id, budget.Read) })
		if err != nil || gone(v) || !pending(v) {
			return v, err
		}
	}
}

// labelled returns the volumes with exactly this label, oldest first. Usually there is one at most.
func (c *Cloud) labelled(ctx context.Context, label string) ([]volume, error) {
	same, err := c.filtered(ctx, label, budget.Read)
	return slices.DeleteFunc(same, func(v volume) bool { return v.Label != label }), err
}

// filtered returns the volumes whose labels match the filter, oldest first.
func (c *Cloud) filtered(ctx context.Context, label any, p budget.Priority) ([]volume, error) {
	same, err := pages(listOf[volume]{
		doing: fmt.Sprintf("find volumes labelled %v", label), call: c.sdk.ListVolumes, filter: map[string]any{"label": label}, priority: p,
	}).All(ctx)
	slices.SortFunc(same, func(a, b volume) int { return a.ID - b.ID })
	return same, err
}

// ListVolumes returns one page of all volumes in all regions that the token may see, in the cloud's order. The attacher compares the list
// with the attachments.
func (c *Cloud) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	part, next, err := c.listing("volumes", func(v *volume) bool { return !isSnapshot(v) }).Part(ctx, page)
	if err != nil {
		return cloud.VolumeList{}, fmt.Errorf("list volumes: %w", err)
	}
	list := cloud.VolumeList{Next: next}
	for i := range part {
		list.Volumes = append(list.Volumes, c.volumeOf(&part[i]))
	}
	return list, nil
}

// volumeOf returns a volume as a cloud.Volume.
func (c *Cloud) volumeOf(v *volume) cloud.Volume {
	vol := cloud.Volume{
		ID:         volumeID(v.ID),
		Name:       v.Label,
		Size:       cloud.Bytes(v.Size) * cloud.GiB,
		Zone:       v.Region,
		Source:     tags.SourceOf(v.Tags),
		Parameters: parametersOf(v),
		Device:     deviceOf(v),
		Tags:       tags.Read(v.Tags),
		Health:     healthOf(v),
		Mark:       c.markOf(v),
	}
	if v.Created != nil {
		vol.Created = v.Created.UTC()
	}
	if linodeOf(v) != 0 {
		vol.AttachedTo = []cloud.NodeID{nodeID(linodeOf(v))}
	}
	return vol
}

// healthOf returns what is wrong with a volume that the cloud failed to create or change.
func healthOf(v *volume) cloud.Health {
	if v.Status != statusBroken {
		return cloud.Health{}
	}
	return cloud.Health{
		Kind: cloud.Inaccessible, Reason: "ContactSupport",
		Message: fmt.Sprintf("volume %d is in the state %q; open a ticket with its id", v.ID, v.Status),
	}
}

// parametersOf returns the parameters of a volume. Encryption is missing if the API does not show it.
func parametersOf(v *volume) []cloud.Parameter {
	if v.Encryption == "" {
		return nil
	}
	return []cloud.Parameter{{Name: ParamEncrypted, Value: strconv.FormatBool(v.Encryption == encrypted)}}
}

// deviceOf returns how a Linode identifies a volume: the disk reports the label that the volume had at the attach, and the API shows the
// link.
func deviceOf(v *volume) cloud.Device {
	link := v.FilesystemPath[strings.LastIndex(v.FilesystemPath, "/")+1:]
	if !strings.HasPrefix(link, devicePrefix) {
		link = devicePrefix + v.Label
	}
	return cloud.Device{Name: link, Serial: strings.TrimPrefix(link, devicePrefix)}
}

// Prices returns the prices of a GiB of a volume for a month, in US dollars: the usual one, and those of the regions that have their own.
// fault.Unavailable if the answer lacks one.
func (c *Cloud) Prices(ctx context.Context) (usual float64, regions map[string]float64, err error) {
	const doing = "read the prices of volumes"
	types, err := pages(listOf[linodego.VolumeType]{doing: doing, call: c.sdk.ListVolumeTypes}).All(ctx)
	if err != nil {
		return 0, nil, err
	}
	regions = map[string]float64{}
	missing := true
	for _, t := range types {
		if t.ID != "volume" {
			continue
		}
		usual, missing = t.Price.Monthly, t.Price.Monthly <= 0
		for _, r := range t.RegionPrices {
			regions[r.ID] = r.Monthly
			missing = missing || r.Monthly <= 0
		}
	}
	if missing {
		return 0, nil, fmt.Errorf("%s: %w: a price is missing in the answer", doing, fault.Unavailable)
	}
	return usual, regions, nil
}
