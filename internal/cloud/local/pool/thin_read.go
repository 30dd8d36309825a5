package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// What the kernel's thin target needs of the pool's metadata (Documentation/admin-guide/device-mapper/thin-provisioning.rst:
// 48 bytes for each chunk). LVM by default makes the metadata a third larger, of which each volume takes some blocks.
const (
	metadataPerChunk        = 48
	metadataPerVolume       = 16 << 10
	metadataReserve   int64 = 1 << 20
)

// Usage returns what the pool holds. Free is in whole extents. Reserved is what the chunks of all logical volumes are
// more than what is written, which LVM reports of an active pool in hundredths of a percent.
func (p *ThinPool) Usage(ctx context.Context) (Usage, error) {
	return within(ctx, p, func(s thinState) (Usage, error) {
		free := max(0, s.freeChunks(0)) * s.pool.Chunk
		written, err := strconv.ParseFloat(cmp.Or(s.pool.Written, "0"), 64)
		if err != nil {
			return Usage{}, fmt.Errorf("pool %s: read the report of lvm: %w: %w", p.location, fault.Unavailable, err)
		}
		return Usage{
			Size: s.pool.Size, Free: free - free%s.pool.Extent, Entries: s.entries(),
			Reserved: max(0, s.allChunks()*s.pool.Chunk-int64(written/100*float64(s.pool.Size))),
		}, nil
	})
}

// freeChunks returns how many chunks are neither allocated to nor reserved for a logical volume, and have
// metadata, with some more volumes. It is negative in a pool that was overcommitted by others.
func (s thinState) freeChunks(moreVolumes int) int64 {
	count := int64(len(s.volumes) + moreVolumes)
	return min(s.pool.Size/s.pool.Chunk, (s.metadata-metadataReserve-count*metadataPerVolume)/metadataPerChunk) - s.allChunks()
}

// allChunks returns how many chunks all logical volumes have, if each is written in full.
func (s thinState) allChunks() (n int64) {
	for _, v := range s.volumes {
		n += s.chunks(v.Size)
	}
	return n
}

// chunks returns how many chunks so many bytes have.
func (s thinState) chunks(size int64) int64 { return (size + s.pool.Chunk - 1) / s.pool.Chunk }

// checkSpace refuses what exceeds the free chunks with this kind.
func (p *ThinPool) checkSpace(s thinState, chunks int64, volumes int, kind error) error {
	if free := s.freeChunks(volumes); chunks > free {
		return fmt.Errorf("the pool %s has %d bytes available, %d are needed: %w", p.location, max(0, free)*s.pool.Chunk, chunks*s.pool.Chunk, kind)
	}
	return nil
}

func (p *ThinPool) list(ctx context.Context, in folder) ([]Entry, error) {
	return within(ctx, p, func(s thinState) ([]Entry, error) {
		return slices.DeleteFunc(s.entries(), func(e Entry) bool { return e.ref().folder != in }), nil
	})
}

func (p *ThinPool) get(ctx context.Context, ref objectRef) (Entry, error) {
	return within(ctx, p, func(s thinState) (Entry, error) { return p.entry(s, ref) })
}

// entry returns the entry of one object.
func (p *ThinPool) entry(s thinState, ref objectRef) (Entry, error) {
	if v := s.find(ref); v != nil {
		return entryOf(ref, *v), nil
	}
	return Entry{}, fmt.Errorf("%s: %w", p.name(ref), fault.NotFound)
}

// whole is entry for what can be used.
func (p *ThinPool) whole(s thinState, ref objectRef) (Entry, error) {
	e, err := p.entry(s, ref)
	if err == nil && e.Kind != Whole {
		err = p.refuse(e)
	}
	return e, err
}

func (p *ThinPool) holds(ctx context.Context, ref objectRef) (bool, error) {
	s, err := p.observe(ctx)
	return s.find(ref) != nil, err
}

func (p *ThinPool) idOf(ctx context.Context, in folder, name string) (ID, error) {
	s, err := p.observe(ctx)
	for _, e := range named(s.entries(), name) {
		if e.ref().folder == in {
			return e.ID, err
		}
	}
	return "", err
}

// find returns the logical volume of an object, or nil.
func (s thinState) find(ref objectRef) *logicalVolume {
	for i := range s.volumes {
		if s.volumes[i].Name == lvName(ref) {
			return &s.volumes[i]
		}
	}
	return nil
}

// recover removes what interrupted creates have left. The caller holds the lock, so their processes have ended. What
// cannot be removed stays as a damaged entry and does not block the others.
func (p *ThinPool) recover(s *thinState) {
	s.volumes = slices.DeleteFunc(s.volumes, func(v logicalVolume) bool {
		_, ours := parseLV(v.Name)
		return ours && v.creating() && v.Active == "" && p.remove(v) == nil
	})
}

// entries returns all entries, sorted by id.
func (s thinState) entries() []Entry {
	var entries []Entry
	for _, v := range s.volumes {
		if ref, ours := parseLV(v.Name); ours {
			entries = append(entries, entryOf(ref, v))
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return entries
}

func entryOf(ref objectRef, v logicalVolume) Entry {
	r, err := recordOf(ref, v)
	e := Entry{ID: ref.id, Kind: Whole, Snapshot: ref.isSnapshot(), File: v.Name, Record: r, Size: v.Size, Allocated: v.Size}
	switch {
	case v.creating():
		e.Kind, e.Problem = Damaged, "what an interrupted create has left, which cannot be removed"
	case errors.Is(err, errNoRecord):
		e.Kind, e.Problem = NoRecord, err.Error()
	case errors.Is(err, errNewer):
		e.Kind, e.Problem = Newer, err.Error()
	case err != nil:
		e.Kind, e.Problem = Damaged, fmt.Sprintf("its record: %v", err)
	}
	return e
}

// InUse returns the device of an entry if it is active, else "".
func (p *ThinPool) InUse(ctx context.Context, e Entry) (string, error) {
	return within(ctx, p, func(s thinState) (string, error) {
		if v := s.find(e.ref()); v != nil && v.Active != "" {
			return p.device(*v), nil
		}
		return "", nil
	})
}

func (p *ThinPool) device(v logicalVolume) string { return "/dev/" + p.group + "/" + v.Name }

// NeverWritten reports whether no chunk of a volume is allocated, so that all of it reads as zeros. False means that
// there is no proof.
func (p *ThinPool) NeverWritten(ctx context.Context, id ID) (bool, error) {
	return within(ctx, p, func(s thinState) (bool, error) {
		v := s.find(volumeRef(id))
		// LVM never rounds to 0 (dm_make_percent).
		return v != nil && v.Active != "" && v.Written == "0.00", nil
	})
}

// uuid returns the UUID that the kernel has for a logical volume: those of its volume group and its own, of 32 characters.
func (v logicalVolume) uuid() string { return "LVM-" + strings.ReplaceAll(v.GroupID+v.ID, "-", "") }

// IsDevice reports whether a device-mapper device with this name and UUID is that of a volume of the pool.
func (p *ThinPool) IsDevice(id ID, name, uuid string) bool {
	return MayBeDevice(id, name, uuid) && uuid[:len(uuid)-32] == p.uuid[:len(p.uuid)-32]
}

// MayBeDevice is IsDevice for whatever pool. The name ends with the 128 random bits of the id, in which LVM doubles each
// hyphen. Longer UUIDs are those of parts of volumes.
func MayBeDevice(id ID, name, uuid string) bool {
	return strings.HasSuffix(name, "-"+strings.ReplaceAll(lvName(volumeRef(id)), "-", "--")) &&
		strings.HasPrefix(uuid, "LVM-") && len(uuid) == len("LVM-")+2*32
}
