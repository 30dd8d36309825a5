package linode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	encrypted   = "enabled"
	unencrypted = "disabled"
)

// volumeOf translates a volume.
func volumeOf(v *volume) cloud.Volume {
	vol := cloud.Volume{
		ID:         volumeID(v.id),
		Name:       v.label,
		Size:       cloud.Bytes(v.gib) * cloud.GiB,
		Zone:       v.region,
		Source:     remote.SourceOf(v.tags),
		Parameters: parametersOf(v),
		Device:     deviceOf(v),
		Tags:       remote.ReadTags(v.tags),
	}
	if v.linode != 0 {
		vol.AttachedTo = []cloud.NodeID{nodeID(v.linode)}
	}
	return vol
}

func parametersOf(v *volume) []cloud.Parameter {
	switch {
	case v.encryption == encrypted:
		return []cloud.Parameter{{Name: ParamEncrypted, Value: "true"}}
	case remote.TagValue(v.tags, tagPlain) == "false":
		return []cloud.Parameter{{Name: ParamEncrypted, Value: "false"}}
	}
	return nil
}

// deviceOf is how a Linode recognises a volume: the disk says the label about itself that the volume had when
// it was attached, and the API shows it as a link.
func deviceOf(v *volume) cloud.Device {
	link := v.link
	if !strings.HasPrefix(link, devicePrefix) {
		link = devicePrefix + v.label
	}
	return cloud.Device{Name: link, Serial: strings.TrimPrefix(link, devicePrefix)}
}

// CreateVolume makes a volume and waits until it is active.
func (c *Cloud) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	doing := fmt.Sprintf("create volume %q", req.Name)
	o, err := c.order(req)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var v *volume
	if req.Source.Volume != "" {
		v, err = c.clone(ctx, req, o)
	} else {
		v, err = c.create(ctx, req, o)
	}
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, err)
	}
	return volumeOf(v), nil
}

// order checks and translates a request, without asking anybody.
func (c *Cloud) order(req cloud.CreateVolumeRequest) (order, error) {
	o := order{label: c.labelOf(req.Name), gib: max(gib(req.Size), leastSize), encryption: unencrypted}
	switch {
	case req.Name == "":
		return o, fmt.Errorf("it has no name: %w", fault.InvalidArgument)
	case o.gib > mostSize:
		return o, fmt.Errorf("%s is more than %d GiB, the largest volume: %w", req.Size, mostSize, fault.OutOfRange)
	case req.Limit > 0 && cloud.Bytes(o.gib)*cloud.GiB > req.Limit:
		return o, fmt.Errorf("a volume has %d GiB at least, which is more than the limit %s: %w", o.gib, req.Limit, fault.OutOfRange)
	case req.Source.Snapshot != "":
		return o, fmt.Errorf("from snapshot %.80q: %w: %s", req.Source.Snapshot, fault.InvalidArgument, noSnapshotsAdvice)
	}
	var own []cloud.Tag
	for _, p := range req.Parameters {
		switch {
		case p.Name != ParamEncrypted:
			return o, fmt.Errorf("unknown parameter %q: %w", p.Name, fault.InvalidArgument)
		case p.Value == "true":
			o.encryption = encrypted
		case p.Value == "false":
			own = append(own, cloud.Tag{Key: tagPlain, Value: p.Value})
		default:
			return o, fmt.Errorf("parameter %s: neither true nor false: %w", p.Name, fault.InvalidArgument)
		}
	}
	source := req.Source
	if source.Volume != "" {
		n, ok := volumeNumber(source.Volume)
		if !ok {
			return o, fmt.Errorf("source volume %.80q: %w: no volume has such an id", source.Volume, fault.NotFound)
		}
		source.Volume = volumeID(n)
	}
	var err error
	o.tags, err = c.owner.Words(req.Name, req.Tags, source, own...)
	return o, err
}

// create makes a blank volume.
func (c *Cloud) create(ctx context.Context, req cloud.CreateVolumeRequest, o order) (*volume, error) {
	zones, err := c.zones(ctx, req, o)
	if err != nil {
		return nil, err
	}
	// Labels are taken once for all regions as far as is known. Where an earlier call may have made the volume
	// in another one, it has to be looked for all the same.
	if len(zones) > 1 || zones[0] != c.region {
		if err := c.labelIsFree(ctx, o.label); err != nil {
			return nil, err
		}
	}
	for i, zone := range zones {
		o.region = zone
		v, err := c.createOne(ctx, o)
		if err == nil {
			return v, nil
		}
		if !isAbout(err, "region") || fault.Of(err) != fault.InvalidArgument {
			return nil, err
		}
		if i == len(zones)-1 {
			return nil, fmt.Errorf("none of the regions %s can serve it: %w: %w", strings.Join(zones, ", "), fault.Exhausted, apiErrors.Of(err))
		}
	}
	return nil, fmt.Errorf("no region is left: %w", fault.Exhausted)
}

// createOne creates in one region. The request of a lost answer may land, so nothing is repeated here.
func (c *Cloud) createOne(ctx context.Context, o order) (*volume, error) {
	v, err := c.make(ctx, o.label, func(ctx context.Context) (*volume, error) { return c.sendCreate(ctx, o) })
	if apiErrors.Refused(err) && fault.Of(err) != fault.Busy && !isAbout(err, "region") {
		if taken := c.labelIsFree(ctx, o.label); taken != nil {
			return nil, fmt.Errorf("%w: %w", taken, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return c.made(ctx, v, false)
}

// make sends a create or a clone. What has the label is one object for the order of writes.
func (c *Cloud) make(ctx context.Context, label string, send func(ctx context.Context) (*volume, error)) (*volume, error) {
	made := make(chan *volume, 1)
	err := c.work.Write(ctx, "label "+label, func(ctx context.Context) error {
		asked := time.Now()
		v, err := send(ctx)
		if err == nil {
			c.known.saw(v, asked)
			made <- v
		}
		return err
	})
	if err != nil {
		return nil, apiErrors.Write("send it", err)
	}
	return <-made, nil
}

// made waits until a volume that this call made is active. One that the cloud could not make is removed.
func (c *Cloud) made(ctx context.Context, v *volume, copied bool) (*volume, error) {
	if v.status == statusActive {
		return v, nil
	}
	kind := kindCreate
	if copied {
		kind = kindClone
	}
	id, began := v.id, time.Now()
	broken := false
	v, err := c.await(ctx, id, kind, began, func(v *volume) (bool, error) {
		switch {
		case gone(v):
			return false, nil // not there yet for whoever answered, or somebody removes it: that is for a repeat to see
		case v.status == statusBroken:
			broken = true
			return true, nil
		}
		return v.status == statusActive, nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("volume %d is being made: %w: %w", id, fault.Uncertain, err)
	case broken:
		return nil, c.takeBack(ctx, id, fmt.Errorf("the cloud could not make volume %d: it came to the state %q: %w", id, statusBroken, fault.Unavailable))
	}
	return v, nil
}

// takeBack deletes what this call has made, by its id, and returns why; fault.Uncertain where that fails.
func (c *Cloud) takeBack(ctx context.Context, id int, why error) error {
	if err := c.DeleteVolume(ctx, volumeID(id)); err != nil {
		return fmt.Errorf("%w: volume %d is left: %w: %w", fault.Uncertain, id, err, why)
	}
	return why
}

// labelIsFree answers fault.Conflict where a volume has the label.
func (c *Cloud) labelIsFree(ctx context.Context, label string) error {
	same, err := c.labelled(ctx, label)
	switch {
	case err != nil:
		return err
	case len(same) > 0:
		return fmt.Errorf("volume %d in %s has the label %s: %w", same[0].id, same[0].region, label, fault.Conflict)
	}
	return nil
}

// labelled returns the volumes with exactly this label, oldest first. Usually there is one at most.
func (c *Cloud) labelled(ctx context.Context, label string) (same []*volume, err error) {
	same, err = c.filtered(ctx, label)
	same = slices.DeleteFunc(same, func(v *volume) bool { return v.label != label })
	return same, err
}

// filtered returns the volumes whose labels the filter fits, oldest first.
func (c *Cloud) filtered(ctx context.Context, label any) (same []*volume, err error) {
	if budget.PriorityOf(ctx) == budget.Default {
		ctx = budget.WithPriority(ctx, budget.Read)
	}
	pages := remote.Pages[*volume](func(ctx context.Context, number int) ([]*volume, bool, error) {
		return c.volumePage(ctx, listing{number: number, size: perPage, filter: map[string]any{"label": label}})
	})
	err = pages.Each(ctx, func(page []*volume) { same = append(same, page...) })
	if err != nil {
		return nil, apiErrors.Read(fmt.Sprintf("look for volumes labelled %v", label), err)
	}
	same = slices.DeleteFunc(same, gone)
	slices.SortFunc(same, func(a, b *volume) int { return a.id - b.id })
	return same, nil
}

// FindVolume returns the volume made under this request name, once it is active.
func (c *Cloud) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	missing := fmt.Errorf("find volume %q: %w", name, fault.NotFound)
	if name == "" {
		return cloud.Volume{}, missing
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	same, err := c.labelled(ctx, c.labelOf(name))
	if err != nil {
		return cloud.Volume{}, err
	}
	at := slices.IndexFunc(same, func(v *volume) bool { return c.owner.MadeFor(name, v.tags) })
	switch {
	case len(same) == 0:
		return cloud.Volume{}, missing
	case at < 0:
		return cloud.Volume{}, fmt.Errorf("find volume %q: volume %d has its label %s and was made for something else (see its tags): %w",
			name, same[0].id, same[0].label, fault.Conflict)
	}
	v := same[at]
	if v.status == statusDeleting {
		return cloud.Volume{}, fmt.Errorf("find volume %q: volume %d is being deleted, and has its label %s until then: %w", name, v.id, v.label, fault.Unavailable)
	}
	if v.status != statusActive {
		if v, err = c.settled(ctx, v.id); err != nil {
			return cloud.Volume{}, err
		}
	}
	switch {
	case gone(v):
		return cloud.Volume{}, missing
	case v.status == statusBroken:
		return cloud.Volume{}, errBroken(v)
	}
	return volumeOf(v), nil
}

// GetVolume returns the present state of a volume.
func (c *Cloud) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	n, ok := volumeNumber(id)
	if !ok {
		return cloud.Volume{}, fmt.Errorf("volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	}
	v, err := c.present(ctx, n)
	if err != nil {
		return cloud.Volume{}, err
	}
	return volumeOf(v), nil
}

// objectOf names a volume in the order of writes.
func objectOf(id int) string { return "volume " + string(volumeID(id)) }
