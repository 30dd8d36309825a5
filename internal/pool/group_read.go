package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// metadataReserve is how much of the group's metadata area stays free: a volume with its tags takes some 1 KiB, and at the
// most what maxGroupRecord allows; growths and tags of the volumes that are there need the rest.
const metadataReserve = 64 << 10

// Usage returns what the pool holds. Free is in whole extents, and 0 where LVM would refuse a volume more.
func (p *GroupPool) Usage(ctx context.Context) (Usage, error) {
	return within(ctx, p, func(s groupState) (Usage, error) {
		u := Usage{Size: s.Extents * s.Extent, Free: s.FreeExtents * s.Extent, Entries: s.entries()}
		if p.full(s) != nil || s.MissingDisks > 0 {
			u.Free = 0
		}
		return u, nil
	})
}

// full refuses one more volume where the group has no room for its description.
func (p *GroupPool) full(s groupState) error {
	if s.FreeMetadata >= metadataReserve {
		return nil
	}
	return fmt.Errorf("the metadata area of the volume group %s has %d bytes left and %d are kept; make the next group with a larger one (vgcreate --metadatasize): %w",
		p.group, s.FreeMetadata, metadataReserve, fault.PoolFull)
}

// checkSpace refuses what exceeds the free extents with this kind.
func (p *GroupPool) checkSpace(s groupState, size int64, kind error) error {
	if free := s.FreeExtents * s.Extent; size > free {
		return fmt.Errorf("the pool %s has %d bytes available, %d are needed: %w", p.location, free, size, kind)
	}
	return nil
}

// roundUp returns a size in whole extents.
func (s groupState) roundUp(size int64) int64 {
	return (size + s.Extent - 1) / s.Extent * s.Extent
}

func (p *GroupPool) list(ctx context.Context, in folder) ([]Entry, error) {
	return within(ctx, p, func(s groupState) ([]Entry, error) {
		if in != volumes {
			return nil, nil
		}
		return s.entries(), nil
	})
}

func (p *GroupPool) get(ctx context.Context, ref objectRef) (Entry, error) {
	return within(ctx, p, func(s groupState) (Entry, error) { return p.entry(s, ref) })
}

// entry returns the entry of one object.
func (p *GroupPool) entry(s groupState, ref objectRef) (Entry, error) {
	if v := s.find(lvName(ref.id)); v != nil && !ref.isSnapshot() {
		return entryOf(ref.id, *v), nil
	}
	return Entry{}, fmt.Errorf("%s: %w", p.name(ref), fault.NotFound)
}

// whole is entry for what can be used.
func (p *GroupPool) whole(s groupState, id ID) (Entry, error) {
	e, err := p.entry(s, volumeRef(id))
	if err == nil && e.Kind != Whole {
		err = p.refuse(e)
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
func (s groupState) entries() []Entry {
	var entries []Entry
	for _, v := range s.volumes {
		id, ours := parseLV(v.Name)
		switch {
		case ours && v.Name == lvName(id):
			entries = append(entries, entryOf(id, v))
		case ours && s.find(lvName(id)) == nil: // the volume that was growing was removed by hand
			entries = append(entries, entryOf(id, v))
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return entries
}

func entryOf(id ID, v logicalVolume) Entry {
	r, err := recordOf(id, v)
	e := Entry{ID: id, Kind: Whole, File: v.Name, Record: r, Size: v.Size, Allocated: v.Size}
	switch {
	case errors.Is(err, errNoRecord):
		e.Kind, e.Problem = NoRecord, err.Error()
	case err != nil:
		e.Kind, e.Problem = Damaged, err.Error()
	case v.Health != "":
		e.Kind, e.Problem = Damaged, fmt.Sprintf("LVM calls it %s: a disk of its volume group is missing", v.Health)
	case v.broken != nil:
		e.Kind, e.Problem = Damaged, fmt.Sprintf("a command that was killed has left its device in the middle of a change: %v", v.broken)
	case v.beingZeroed():
		e.Kind, e.Problem = UnderWay, fmt.Sprintf("zeros are being written to it, %d of %d bytes are", v.zeroed(), v.Size)
	case v.creating():
		e.Kind, e.Problem = Unfinished, fmt.Sprintf("its create was interrupted after %d of %d bytes; the next one for its name goes on", v.zeroed(), v.Size)
	}
	return e
}

// InUse returns the device of an entry if it is active, else "".
func (p *GroupPool) InUse(ctx context.Context, e Entry) (string, error) {
	return within(ctx, p, func(s groupState) (string, error) {
		if v := s.find(lvName(e.ID)); v != nil && v.Active != "" {
			return p.device(*v), nil
		}
		return "", nil
	})
}

func (p *GroupPool) device(v logicalVolume) string { return "/dev/" + p.target(v.Name) }

// NeverWritten reports whether nothing was written to a volume since all of it was made to read as zeros.
func (p *GroupPool) NeverWritten(ctx context.Context, id ID) (bool, error) {
	return within(ctx, p, func(s groupState) (bool, error) {
		v := s.find(lvName(id))
		return v != nil && v.has(blankTag+bytesOf(v.Size)), nil
	})
}

// kernelName returns the name that the kernel has for the device of a logical volume.
func (p *GroupPool) kernelName(v logicalVolume) string {
	return strings.ReplaceAll(p.group, "-", "--") + "-" + strings.ReplaceAll(v.Name, "-", "--")
}

// kernelUUID returns the UUID that the kernel has for a logical volume: those of its volume group and its own, of 32 characters.
func (p *GroupPool) kernelUUID(v logicalVolume) string { return "LVM-" + p.uuid + plain(v.ID) }

// IsDevice reports whether a device-mapper device with this name and UUID is that of a volume of the pool.
func (p *GroupPool) IsDevice(id ID, name, uuid string) bool {
	return MayBeDevice(id, name, uuid) && strings.HasPrefix(uuid, "LVM-"+p.uuid)
}

// MayBeDevice is IsDevice for whatever pool. The name ends with the 128 random bits of the id, in which LVM doubles each
// hyphen. Longer UUIDs are those of parts of volumes.
func MayBeDevice(id ID, name, uuid string) bool {
	return strings.HasSuffix(name, "-"+strings.ReplaceAll(lvName(id), "-", "--")) &&
		strings.HasPrefix(uuid, "LVM-") && len(uuid) == len("LVM-")+2*32
}
