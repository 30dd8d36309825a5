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

// The floor is this share of the filesystem, within these bounds: the filesystem needs some room for
// what it writes about the volumes, and the node for what else it keeps there.
const (
	floorShare       = 50
	leastFloor int64 = 64 << 20
	mostFloor  int64 = 4 << 30
)

// Free returns how many more bytes of volumes have room: what the filesystem has free, less what
// existing volumes were promised and do not occupy at the moment, less the floor. Never negative.
func (p *Pool) Free(ctx context.Context) (int64, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	entries, err := p.recover()
	if err != nil {
		return 0, err
	}
	return p.free(entries)
}

// free is Free under the lock.
func (p *Pool) free(entries []Entry) (int64, error) {
	room, err := p.room(entries, nil)
	return max(0, room), err
}

// room is what is free beyond all promises and the floor, if a snapshot of each of these volumes was
// made by reflink. Negative when a promise could not be kept.
func (p *Pool) room(entries []Entry, snapshotted []ID) (int64, error) {
	promised, err := p.sharedPromise(entries, snapshotted)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		promised += e.promise()
	}
	// After the promises: volumes are written to meanwhile, and what such a write takes from the free
	// space it takes off its promise. The other way round it would be missed in both.
	s, err := p.disk.statfs(p.dir)
	if err != nil {
		return 0, fmt.Errorf("read free space of pool %s: %w", p.dir, kindOf(err))
	}
	return s.free - floor(s.total) - promised, nil
}

func floor(total int64) int64 { return min(max(total/floorShare, leastFloor), mostFloor) }

// promise returns how many bytes without a place on the disk this entry may still come to need. A
// volume has such when blocks were given back (a discard, a zeroing of the filesystem inside) or its
// growth was interrupted. A snapshot is never written to, so its holes need nothing.
func (e Entry) promise() int64 {
	switch {
	case e.Kind == NoImage, e.Kind == Unknown:
		return 0
	case e.Snapshot:
		return max(0, e.Record.Promise-e.Allocated)
	}
	return max(0, max(e.Size, e.Record.promised())-e.Allocated)
}

// sharedPromise returns how many bytes volumes may come to need because they share what they occupy.
// Writing to a shared place takes a new one. A place that w volumes and no snapshot share is needed
// w-1 times more, since the last writer has it for itself; a snapshot keeps it, and makes that w.
func (p *Pool) sharedPromise(entries []Entry, snapshotted []ID) (int64, error) {
	// Without its record nobody knows whether an image is a copy.
	copied := func(e Entry) bool {
		return e.ID != "" && (e.Snapshot || e.Record.Source != "" || e.Kind == NoRecord || e.Kind == Newer || e.Kind == Damaged)
	}
	if len(snapshotted) == 0 && !slices.ContainsFunc(entries, copied) {
		return 0, nil
	}
	var edges []edge
	for _, e := range entries {
		if e.ID == "" || e.Kind == NoImage || e.Allocated == 0 {
			continue
		}
		planned := !e.Snapshot && slices.Contains(snapshotted, e.ID)
		places, err := p.places(e.ref(), e.Size)
		if err != nil {
			return 0, fmt.Errorf("look where %s lies on the disk: %w", p.name(e.ref()), kindOf(err))
		}
		for _, m := range places {
			switch {
			case m.flags&(fiemapUnknown|fiemapDelayed) != 0: // no place yet
			case planned && m.flags&fiemapUnwritten == 0:
				// A snapshot shares what was written; it gives back what was only reserved.
				edges = append(edges, edgesOf(m, 1, 1)...)
			case m.flags&fiemapShared == 0 && !planned:
			case e.Snapshot:
				edges = append(edges, edgesOf(m, 0, 1)...)
			default:
				edges = append(edges, edgesOf(m, 1, 0)...)
			}
		}
	}
	return neededCopies(edges), nil
}

// edge is where, on the disk, the number of volumes and snapshots that lie there changes.
type edge struct {
	at                 int64
	volumes, snapshots int64
}

func edgesOf(m mapped, volumes, snapshots int64) []edge {
	return []edge{{m.physical, volumes, snapshots}, {m.physical + m.length, -volumes, -snapshots}}
}

func neededCopies(edges []edge) (need int64) {
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var volumes, snapshots int64
	for i, e := range edges {
		if i > 0 {
			copies := volumes
			if snapshots == 0 {
				copies = max(0, volumes-1)
			}
			need += copies * (e.at - edges[i-1].at)
		}
		volumes, snapshots = volumes+e.volumes, snapshots+e.snapshots
	}
	return need
}

// places returns where an image lies on the disk.
func (p *Pool) places(ref objectRef, size int64) ([]mapped, error) {
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
