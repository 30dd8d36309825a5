package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateVolume makes a volume in the first zone that has room.
func (c *Cloud) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	a := c.account
	if err := c.checkCreate(req); err != nil {
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	return write(ctx, a, CallCreateVolume, func(s state, f Fault) (cloud.Volume, error) {
		if _, taken := c.named(s, req.Name); taken {
			return cloud.Volume{}, fmt.Errorf("create volume %q: %w: the name is taken", req.Name, fault.Conflict)
		}
		zones, least, err := a.placement(s, req)
		if err != nil {
			return cloud.Volume{}, fmt.Errorf("create volume %q: %w", req.Name, err)
		}
		at := slices.IndexFunc(zones, func(zone string) bool {
			return slices.Contains(a.cfg.Zones, zone) && a.room(s, zone) >= req.Size
		})
		if at < 0 {
			return cloud.Volume{}, fmt.Errorf("create volume %q: %w: none of the zones %q has %s", req.Name, fault.NoZone, zones, req.Size)
		}
		size := req.Size
		if f.half && !req.Source.Blank() {
			size = least
		}
		n := a.number()
		name := fmt.Sprintf("vol-%08x", n)
		vol := volume{
			Volume: cloud.Volume{
				ID: cloud.VolumeID(name), Name: req.Name, Size: size, Created: time.Now().UTC().Round(0), Zone: zones[at], Source: req.Source,
				Parameters: slices.Clone(req.Parameters), Tags: slices.Clone(req.Tags),
				Device: cloud.Device{Name: name, Serial: name}, Mark: cloud.Mark{Driver: true, Cluster: c.cluster},
			},
			number: n, cluster: c.cluster, ready: time.Now().Add(a.cfg.OperationTime),
		}
		s.volumes[vol.ID] = vol
		return vol.out(), nil
	})
}

// checkCreate refuses what can never succeed, before anything is sent.
func (c *Cloud) checkCreate(req cloud.CreateVolumeRequest) error {
	caps := c.account.cfg.Capabilities
	switch {
	case req.Name == "":
		return fmt.Errorf("%w: the name is empty", fault.InvalidArgument)
	case req.Size <= 0 || req.Size%caps.SizeStep != 0:
		return fmt.Errorf("%w: the size %s is not a multiple of %s", fault.InvalidArgument, req.Size, caps.SizeStep)
	case req.Limit != 0 && req.Limit < req.Size:
		return fmt.Errorf("%w: the limit %s is below the size %s", fault.InvalidArgument, req.Limit, req.Size)
	case req.Size < caps.SmallestVolume || req.Size > caps.LargestVolume:
		return fmt.Errorf("%w: sizes are %s to %s, not %s", fault.OutOfRange, caps.SmallestVolume, caps.LargestVolume, req.Size)
	case req.Source.Snapshot != "" && req.Source.Volume != "":
		return fmt.Errorf("%w: two sources", fault.InvalidArgument)
	case req.Source.Snapshot != "" && !caps.Snapshots:
		return fmt.Errorf("%w: this cloud cannot restore snapshots", fault.InvalidArgument)
	case req.Source.Volume != "" && !caps.Clones:
		return fmt.Errorf("%w: this cloud cannot copy volumes", fault.InvalidArgument)
	}
	if err := errors.Join(
		c.account.elsewhere(string(req.Source.Snapshot), fault.SourceElsewhere),
		c.account.elsewhere(string(req.Source.Volume), fault.SourceElsewhere),
	); err != nil {
		return err
	}
	return c.account.checkParameters(req.Parameters)
}

func (a *Account) checkParameters(params []cloud.Parameter) error {
	known := a.cfg.Capabilities.Parameters
	for _, p := range params {
		if !slices.Contains(known, p.Name) {
			return fmt.Errorf("%w: parameter %q is not one of %q", fault.InvalidArgument, p.Name, known)
		}
	}
	return nil
}

// placement returns the zones that may take the volume, best first, and its smallest size.
func (a *Account) placement(s state, req cloud.CreateVolumeRequest) (zones []string, least cloud.Bytes, err error) {
	zones = req.Zones
	if len(zones) == 0 {
		zones = a.cfg.Zones[:1]
	}
	switch {
	case req.Source.Snapshot != "":
		snap, err := s.snapshot(req.Source.Snapshot)
		if err != nil {
			return nil, 0, err
		}
		if time.Now().Before(snap.ready) {
			return nil, 0, fmt.Errorf("snapshot %s is not ready: %w", snap.ID, fault.Busy)
		}
		switch bound := a.cfg.Capabilities.SnapshotZones; {
		case bound && len(req.Zones) > 0 && !slices.Contains(req.Zones, snap.zone):
			return nil, 0, fmt.Errorf("%w: snapshot %s is in zone %s and can be restored only there", fault.SourceElsewhere, snap.ID, snap.zone)
		case bound, len(req.Zones) == 0:
			zones = []string{snap.zone}
		}
		least = snap.Size
	case req.Source.Volume != "":
		from, err := s.volume(req.Source.Volume)
		if err != nil {
			return nil, 0, err
		}
		if len(req.Zones) > 0 && !slices.Contains(req.Zones, from.Zone) {
			return nil, 0, fmt.Errorf("%w: volume %s is in zone %s and can be copied only there", fault.SourceElsewhere, from.ID, from.Zone)
		}
		zones, least = []string{from.Zone}, from.Size
	}
	if req.Size < least {
		return nil, 0, fmt.Errorf("%w: the source has %s, asked for are %s", fault.OutOfRange, least, req.Size)
	}
	return zones, least, nil
}

// named returns the volume that holds the name for this cluster, whoever made it.
func (c *Cloud) named(s state, name string) (volume, bool) {
	for _, vol := range s.volumes {
		if vol.Name == name && (vol.cluster == c.cluster || !c.account.cfg.NamesPerCluster) {
			return vol, true
		}
	}
	return volume{}, false
}

// FindVolume waits until the volume is ready.
func (c *Cloud) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	vol, err := read(ctx, c.account, CallFindVolume, func(s state) (volume, error) {
		vol, found := c.named(s, name)
		switch {
		case !found:
			return volume{}, fmt.Errorf("volume named %q: %w", name, fault.NotFound)
		case vol.cluster != c.cluster:
			return volume{}, fmt.Errorf("volume named %q: %w: %s is of cluster %q", name, fault.Conflict, vol.ID, vol.cluster)
		}
		return vol, nil
	})
	if err != nil {
		return cloud.Volume{}, err
	}
	if err := wait(ctx, time.Until(vol.ready)); err != nil {
		return cloud.Volume{}, fmt.Errorf("wait for volume %s: %w", vol.ID, err)
	}
	return c.account.show(vol), nil
}

// GetVolume returns the volume as it is, ready or not.
func (c *Cloud) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	return read(ctx, c.account, CallGetVolume, func(s state) (cloud.Volume, error) {
		vol, err := s.volume(id)
		return c.account.show(vol), err
	})
}

// DeleteVolume removes the volume unless something uses it.
func (c *Cloud) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	if err := c.account.elsewhere(string(id), fault.Precondition); err != nil {
		return fmt.Errorf("delete volume: %w", err)
	}
	_, err := write(ctx, c.account, CallDeleteVolume, func(s state, _ Fault) (none struct{}, err error) {
		vol := s.volumes[id]
		switch {
		case len(vol.AttachedTo) > 0:
			return none, fmt.Errorf("delete volume %s: %w: it is attached to %s, detach it first", id, fault.VolumeInUse, vol.AttachedTo[0])
		case vol.inUse:
			return none, fmt.Errorf("delete volume %s: %w: it is in use", id, fault.VolumeInUse)
		}
		delete(s.volumes, id)
		return none, nil
	})
	return err
}

// ListVolumes lists the volumes of all clusters, oldest first.
func (c *Cloud) ListVolumes(ctx context.Context, want cloud.Page) (cloud.VolumeList, error) {
	return read(ctx, c.account, CallListVolumes, func(s state) (list cloud.VolumeList, err error) {
		all := make([]volume, 0, len(s.volumes))
		for _, vol := range s.volumes {
			all = append(all, vol)
		}
		part, next, err := page(c.account, "volumes", all, want)
		for _, vol := range part {
			list.Volumes = append(list.Volumes, c.account.show(vol))
		}
		list.Next = next
		return list, err
	})
}

// ExpandVolume rounds the size up to the step.
func (c *Cloud) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	a := c.account
	caps := a.cfg.Capabilities
	if !caps.Expand {
		return cloud.Expansion{}, fmt.Errorf("expand volume %s: %w", id, fault.Unsupported)
	}
	if err := a.elsewhere(string(id), fault.Precondition); err != nil {
		return cloud.Expansion{}, fmt.Errorf("expand volume: %w", err)
	}
	return write(ctx, a, CallExpandVolume, func(s state, _ Fault) (cloud.Expansion, error) {
		vol, err := s.volume(id)
		if err != nil {
			return cloud.Expansion{}, fmt.Errorf("expand: %w", err)
		}
		now := cloud.Expansion{Size: vol.Size, NodeMustConfirm: a.cfg.NodeMustConfirm && len(vol.AttachedTo) > 0}
		switch {
		case size <= vol.Size:
			return now, nil
		case size > caps.LargestVolume:
			return cloud.Expansion{}, fmt.Errorf("expand volume %s to %s: %w: the largest is %s", id, size, fault.OutOfRange, caps.LargestVolume)
		case a.cfg.OfflineExpand && len(vol.AttachedTo) > 0:
			return cloud.Expansion{}, fmt.Errorf("expand volume %s: %w: it is attached to %s", id, fault.Precondition, vol.AttachedTo[0])
		}
		size += (caps.SizeStep - size%caps.SizeStep) % caps.SizeStep
		if room := a.room(s, vol.Zone); size-vol.Size > room {
			return cloud.Expansion{}, fmt.Errorf("expand volume %s to %s: %w: zone %s has %s left", id, size, fault.Exhausted, vol.Zone, room)
		}
		vol.Size, now.Size = size, size
		s.volumes[id] = vol
		return now, nil
	})
}
