package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// The floor is total/floorDivisor, within these bounds. It stays free for the metadata of the filesystem
// and for other files of the node.
const (
	floorDivisor       = 50
	minFloor     int64 = 64 << 20
	maxFloor     int64 = 4 << 30
)

// Usage is what a pool holds.
type Usage struct {
	// Size is that of the filesystem or the volume group. Free is how many bytes of new volumes fit. Reserved is what existing
	// volumes and snapshots may still allocate.
	Size, Free, Reserved int64
	// Entries are the volumes, snapshots and orphans.
	Entries []Entry
}

// Usage returns what the pool holds. Free is the free space of the filesystem, less what is reserved and the floor.
func (p *Pool) Usage(ctx context.Context) (Usage, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return Usage{}, err
	}
	defer unlock()
	entries, err := p.recover()
	if err != nil {
		return Usage{}, err
	}
	reserved, s, err := p.measure(entries, nil)
	if err != nil {
		return Usage{}, err
	}
	return Usage{Size: s.total, Free: max(0, s.free-floor(s.total)-reserved), Reserved: reserved, Entries: entries}, nil
}

// free returns Usage.Free. The caller holds the lock.
func (p *Pool) free(entries []Entry) (int64, error) {
	available, err := p.available(entries, nil)
	return max(0, available), err
}

// available returns the free space beyond all reservations and the floor, on the assumption that a reflink
// snapshot of each volume in snapshotted exists. It is negative when reservations exceed the free space.
func (p *Pool) available(entries []Entry, snapshotted []ID) (int64, error) {
	reserved, s, err := p.measure(entries, snapshotted)
	return s.free - floor(s.total) - reserved, err
}

// measure returns the reservations of all entries, on the assumption that available makes, and the space of the filesystem.
func (p *Pool) measure(entries []Entry, snapshotted []ID) (reserved int64, s space, err error) {
	if reserved, err = p.sharedReservation(entries, snapshotted); err != nil {
		return 0, space{}, err
	}
	for _, e := range entries {
		reserved += e.reservation()
	}
	// Read after the reservations: a concurrent write to a volume reduces both the free space and the
	// reservation. In the other order the sum would count neither.
	if s, err = p.disk.statfs(p.dir); err != nil {
		return 0, space{}, fmt.Errorf("read free space of pool %s: %w", p.dir, kindOf(err))
	}
	return reserved, s, nil
}

func floor(total int64) int64 { return min(max(total/floorDivisor, minFloor), maxFloor) }

// reservation returns how many bytes this entry may still allocate. A volume has unallocated bytes after
// a discard, after the filesystem inside zeroed blocks, and after an interrupted growth. A snapshot is
// never written to, so its holes need no space.
func (e Entry) reservation() int64 {
	if e.Kind == NoImage || e.Kind == Unknown || e.Snapshot {
		return 0
	}
	return max(0, max(e.Size, e.Record.reserved())-e.Allocated)
}

// sharedReservation returns how many bytes volumes may allocate because they overwrite shared blocks.
// Each write to a shared block allocates a new one. A block that w volumes and no snapshot share needs
// w-1 more, since the last writer owns it; a block that a snapshot shares needs w more.
func (p *Pool) sharedReservation(entries []Entry, snapshotted []ID) (int64, error) {
	// An image without a readable record may be a copy.
	copied := func(e Entry) bool {
		return e.ID != "" && (e.Snapshot || e.Record.Source != "" || e.Kind == NoRecord || e.Kind == Newer || e.Kind == Damaged)
	}
	if len(snapshotted) == 0 && !slices.ContainsFunc(entries, copied) {
		return 0, nil
	}
	var boundaries []boundary
	for _, e := range entries {
		if e.ID == "" || e.Kind == NoImage || e.Allocated == 0 {
			continue
		}
		planned := !e.Snapshot && slices.Contains(snapshotted, e.ID)
		mappings, err := p.imageExtents(e.ref(), e.Size)
		if err != nil {
			return 0, fmt.Errorf("read the extents of %s: %w", p.name(e.ref()), kindOf(err))
		}
		for _, m := range mappings {
			switch {
			case m.flags&(fiemapUnknown|fiemapDelayed) != 0: // not allocated yet
			case planned && m.flags&fiemapUnwritten == 0:
				// A snapshot shares written extents only; releaseUnwritten punches out the others.
				boundaries = append(boundaries, boundariesOf(m, 1, 1)...)
			case m.flags&fiemapShared == 0 && !planned:
			case e.Snapshot:
				boundaries = append(boundaries, boundariesOf(m, 0, 1)...)
			default:
				boundaries = append(boundaries, boundariesOf(m, 1, 0)...)
			}
		}
	}
	return neededCopies(boundaries), nil
}

// boundary is an offset on the disk at which the number of volumes and snapshots changes.
type boundary struct {
	at                 int64
	volumes, snapshots int64
}

func boundariesOf(m mapped, volumes, snapshots int64) []boundary {
	return []boundary{{m.physical, volumes, snapshots}, {m.physical + m.length, -volumes, -snapshots}}
}

func neededCopies(boundaries []boundary) (need int64) {
	slices.SortFunc(boundaries, func(a, b boundary) int { return cmp.Compare(a.at, b.at) })
	var volumes, snapshots int64
	for i, e := range boundaries {
		if i > 0 {
			copies := volumes
			if snapshots == 0 {
				copies = max(0, volumes-1)
			}
			need += copies * (e.at - boundaries[i-1].at)
		}
		volumes, snapshots = volumes+e.volumes, snapshots+e.snapshots
	}
	return need
}

// imageExtents returns the extents of an image below size.
func (p *Pool) imageExtents(ref objectRef, size int64) ([]mapped, error) {
	f, err := os.OpenFile(p.file(ref, imageExt), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	found, _, err := extents(f, size)
	return found, err
}
