package lvm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// metadataReserve is how much of the group's metadata area is kept free for growths and tags of existing volumes. A volume with its
// tags takes about 1 KiB, at the maximum maxGroupRecord.
const metadataReserve = 64 << 10

// Usage returns the usage of the pool. Free is in whole extents, and 0 if LVM would refuse another volume.
func (p *Pool) Usage(ctx context.Context) (pool.Usage, error) {
	return within(ctx, p, func(s groupState) (pool.Usage, error) {
		u := pool.Usage{Size: s.Extents * s.Extent, Free: s.freeExtents * s.Extent, Entries: s.entries()}
		if p.full(s) != nil {
			u.Free = 0
		}
		return u, nil
	})
}

// full refuses another volume if the group lacks a disk, or its metadata area has too little space for it.
func (p *Pool) full(s groupState) error {
	switch {
	case s.MissingDisks > 0:
		return fmt.Errorf("the volume group %s lacks %d disks, and LVM makes no volume in it until they are back: %w",
			p.group, s.MissingDisks, fault.PoolUnusable.Explain(fault.Exhausted))
	case s.FreeMetadata >= metadataReserve:
		return nil
	}
	return fmt.Errorf("the metadata area of the volume group %s has %d bytes left and %d are kept; make the next group with a larger one (vgcreate --metadatasize): %w",
		p.group, s.FreeMetadata, metadataReserve, fault.PoolFull)
}

// checkSpace refuses what exceeds the free extents with this kind.
func (p *Pool) checkSpace(s groupState, size int64, kind error) error {
	if free := s.freeExtents * s.Extent; size > free {
		return fmt.Errorf("the pool %s has %d bytes available, %d are needed: %w", p.Location(), free, size, kind)
	}
	return nil
}

// roundUp returns a size in whole extents.
func (s groupState) roundUp(size int64) int64 {
	return (size + s.Extent - 1) / s.Extent * s.Extent
}

func (p *Pool) list(ctx context.Context, in pool.Folder) ([]pool.Entry, error) {
	return within(ctx, p, func(s groupState) ([]pool.Entry, error) {
		if in != pool.Volumes {
			return nil, nil
		}
		return s.entries(), nil
	})
}

func (p *Pool) get(ctx context.Context, ref pool.Ref) (pool.Entry, error) {
	return within(ctx, p, func(s groupState) (pool.Entry, error) { return p.entry(s, ref) })
}

// entry returns the entry of one object.
func (p *Pool) entry(s groupState, ref pool.Ref) (pool.Entry, error) {
	if v := s.find(VolumeName(ref.ID)); v != nil && !ref.IsSnapshot() {
		return entryOf(ref.ID, *v), nil
	}
	return pool.Entry{}, fmt.Errorf("%s: %w", p.Describe(ref), fault.NotFound)
}

// whole returns the entry of a volume and refuses one that is not Whole.
func (p *Pool) whole(s groupState, id pool.ID) (pool.Entry, error) {
	e, err := p.entry(s, pool.VolumeRef(id))
	if err == nil && e.Kind != pool.Whole {
		err = p.Refuse(e)
	}
	return e, err
}

// find returns the logical volume with this name, or nil.
func (s groupState) find(name string) *logicalVolume {
	i := slices.IndexFunc(s.volumes, func(v logicalVolume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &s.volumes[i]
}

// entries returns all volumes, sorted by id.
func (s groupState) entries() []pool.Entry {
	var entries []pool.Entry
	for _, v := range s.volumes {
		id, ours := parseLV(v.Name)
		switch {
		case ours && v.Name == VolumeName(id):
			entries = append(entries, entryOf(id, v))
		case ours && s.find(VolumeName(id)) == nil: // the volume that was growing was removed by hand
			entries = append(entries, entryOf(id, v))
		}
	}
	slices.SortFunc(entries, func(a, b pool.Entry) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return entries
}

func entryOf(id pool.ID, v logicalVolume) pool.Entry {
	r, err := recordOf(id, v)
	e := pool.Entry{ID: id, Kind: pool.Whole, File: v.Name, Record: r, Size: v.Size, Allocated: v.Size}
	switch {
	case errors.Is(err, errNoRecord):
		e.Kind, e.Problem = pool.NoRecord, err.Error()
	case err != nil:
		e.Kind, e.Problem = pool.Damaged, err.Error()
	case v.Health != "":
		e.Kind, e.Problem = pool.Damaged, fmt.Sprintf("LVM calls it %s: a disk of its volume group is missing", v.Health)
	case v.broken != nil:
		e.Kind, e.Problem = pool.Damaged, fmt.Sprintf("a command that was killed has left its device in the middle of a change: %v", v.broken)
	case v.beingZeroed():
		e.Kind, e.Problem = pool.UnderWay, fmt.Sprintf("zeros are being written to it, %d of %d bytes are", v.zeroed(), v.Size)
	case v.creating():
		e.Kind, e.Problem = pool.Unfinished, fmt.Sprintf("its create was interrupted after %d of %d bytes; the next one for its name goes on", v.zeroed(), v.Size)
	}
	return e
}

// InUse returns the device of an entry if it is active, else "".
func (p *Pool) InUse(ctx context.Context, e pool.Entry) (string, error) {
	return within(ctx, p, func(s groupState) (string, error) {
		if v := s.find(VolumeName(e.ID)); v != nil && v.Active != "" {
			return p.device(*v), nil
		}
		return "", nil
	})
}

func (p *Pool) device(v logicalVolume) string { return "/dev/" + p.target(v.Name) }

// NeverWritten reports whether nothing was written to a volume since it was zeroed.
func (p *Pool) NeverWritten(ctx context.Context, id pool.ID) (bool, error) {
	return within(ctx, p, func(s groupState) (bool, error) {
		v := s.find(VolumeName(id))
		return v != nil && v.has(blankTag+bytesOf(v.Size)), nil
	})
}

// kernelName returns the kernel's name of a logical volume's device.
func (p *Pool) kernelName(v logicalVolume) string {
	return strings.ReplaceAll(p.group, "-", "--") + "-" + strings.ReplaceAll(v.Name, "-", "--")
}

// kernelUUID returns the kernel's UUID of a logical volume: the UUID of its volume group and its own, of 32 characters each.
func (p *Pool) kernelUUID(v logicalVolume) string { return "LVM-" + p.uuid + plain(v.ID) }

// IsDevice reports whether a device-mapper device with this name and UUID is that of a volume of the pool.
func (p *Pool) IsDevice(id pool.ID, name, uuid string) bool {
	return MayBeDevice(id, name, uuid) && p.Holds(uuid)
}

// Holds reports whether a device with this UUID is one of this pool's volume group.
func (p *Pool) Holds(uuid string) bool { return strings.HasPrefix(uuid, "LVM-"+p.uuid) }

// MayBeDevice is IsDevice for any pool. The name ends with the 128 random bits of the id, in which LVM doubles each hyphen. Longer
// UUIDs belong to parts of volumes.
func MayBeDevice(id pool.ID, name, uuid string) bool {
	return strings.HasSuffix(name, "-"+strings.ReplaceAll(VolumeName(id), "-", "--")) &&
		strings.HasPrefix(uuid, "LVM-") && len(uuid) == len("LVM-")+2*32
}
