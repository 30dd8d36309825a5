package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/extents"
)

// The floor is total/floorDivisor, within these bounds. It stays free for the metadata of the filesystem
// and for other files of the node.
const (
	floorDivisor       = 50
	minFloor     int64 = 64 << 20
	maxFloor     int64 = 4 << 30
)

// Usage returns what the pool holds. Free is the free space of the filesystem, less what is reserved and the floor.
func (p *Pool) Usage(ctx context.Context) (pool.Usage, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return pool.Usage{}, err
	}
	defer unlock()
	entries, err := p.recover()
	if err != nil {
		return pool.Usage{}, err
	}
	return p.measure(entries)
}

// measure is Usage with the lock held. A volume counts with its size, a snapshot with what it has allocated, which is what its
// volume had written. Reserved is what these have not allocated, and what they share: a block that n images share counts n times
// and is there once, so an overwrite of each finds a free one.
func (p *Pool) measure(entries []pool.Entry) (pool.Usage, error) {
	reserved, err := p.shared(entries)
	if err != nil {
		return pool.Usage{}, err
	}
	for _, e := range entries {
		reserved += reservation(e)
	}
	// Read after the reservations: a concurrent write to a volume reduces both the free space and the
	// reservation. In the other order the sum would count neither.
	s, err := p.disk.statfs(p.dir)
	if err != nil {
		return pool.Usage{}, fmt.Errorf("read free space of pool %s: %w", p.dir, pool.KindOf(err))
	}
	return pool.Usage{Size: s.total, Free: max(0, s.free-floor(s.total)-reserved), Reserved: reserved, Entries: entries}, nil
}

func floor(total int64) int64 { return min(max(total/floorDivisor, minFloor), maxFloor) }

// reservation returns how many bytes this entry may still allocate. A volume has unallocated bytes after
// a discard, after the filesystem inside zeroed blocks, and after an interrupted growth. A snapshot is
// never written to, so its holes need no space.
func reservation(e pool.Entry) int64 {
	if e.Kind == pool.NoImage || e.Kind == pool.Unknown || e.Snapshot {
		return 0
	}
	return max(0, max(e.Size, reservedBy(e.Record))-e.Allocated)
}

// shared returns how many bytes images share with others, not counted for one of them.
func (p *Pool) shared(entries []pool.Entry) (int64, error) {
	// An image without a readable record, and an unknown file, may be a copy.
	copied := func(e pool.Entry) bool {
		return e.Snapshot || e.Record.Source != "" || e.Kind == pool.NoRecord || e.Kind == pool.Newer || e.Kind == pool.Damaged || e.Kind == pool.Unknown
	}
	if !slices.ContainsFunc(entries, copied) {
		return 0, nil
	}
	found := places{most: maxPlaces}
	for _, e := range entries {
		if e.Kind == pool.NoImage || e.Allocated == 0 {
			continue
		}
		name := p.path(string(e.Ref().Folder), e.File)
		err := eachExtent(name, e.Size, func(m extents.Mapping) error {
			if m.Flags&extents.Shared != 0 && m.Flags&(extents.Unknown|extents.Delayed) == 0 {
				found.add(place{m.Physical, m.Length})
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("read the extents of %s: %w", name, pool.KindOf(err))
		}
	}
	return found.shared(), nil
}

// maxPlaces is the maximum number of places in memory: 16 MiB. A pod can make millions of extents in its image.
const maxPlaces = 1 << 20

// places are those that images share.
type places struct {
	all  []place
	most int
	// beyond is the length of those that were too many.
	beyond int64
}

func (p *places) add(one place) {
	if len(p.all) == p.most {
		p.beyond += one.length
		return
	}
	p.all = append(p.all, one)
}

// shared returns how much they share. Those beyond the maximum count in full, which is at least what they share.
func (p *places) shared() int64 { return overlap(p.all) + p.beyond }

// place is a part of the disk, in bytes.
type place struct{ start, length int64 }

// overlap returns by how much places on the disk are longer together than the part of it that they cover.
func overlap(places []place) (total int64) {
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.start, b.start) })
	end := int64(0)
	for _, e := range places {
		total += min(e.length, max(0, end-e.start))
		end = max(end, e.start+e.length)
	}
	return total
}

// eachExtent calls do with each extent of a file below size.
func eachExtent(name string, size int64, do func(extents.Mapping) error) error {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = extents.Each(f, size, do)
	return err
}
