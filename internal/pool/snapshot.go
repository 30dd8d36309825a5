package pool

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// NewSnapshot is a request for a snapshot of a volume.
type NewSnapshot struct {
	// Name is unique among the snapshots of the pool.
	Name   string
	Volume ID
	Tags   []Pair
}

// CreateSnapshot makes a snapshot of a volume and returns when it is durable. The volume may be in use: the snapshot is
// crash-consistent, it holds what a power loss at that instant would have left.
//
// fault.NoCopies in a pool without reflinks, fault.Conflict when the name is taken, fault.NotFound without the volume,
// fault.Exhausted when there is no space for what the volume may write once its content is shared. After an error no file
// remains.
func (p *Pool) CreateSnapshot(ctx context.Context, req NewSnapshot) (Record, error) {
	r, err := req.record()
	if err != nil {
		return Record{}, err
	}
	return p.createCopy(ctx, r, volumeRef(req.Volume))
}

// record returns the first record of a new snapshot.
func (req NewSnapshot) record() (Record, error) {
	if err := checkName(req.Name); err != nil {
		return Record{}, fmt.Errorf("snapshot %.200q: %w: %w", req.Name, fault.InvalidArgument, err)
	}
	return Record{ID: NewID(), Name: req.Name, State: Creating, Created: now(), Volume: req.Volume, Tags: req.Tags}, nil
}

// admitSnapshot refuses a snapshot for which the available space does not suffice: what its volume has written. It takes none
// itself, but an overwrite of a block that it shares allocates a new one.
func (p *Pool) admitSnapshot(entries []Entry, r Record, src *source) error {
	u, err := p.measure(entries)
	if err != nil {
		return err
	}
	need, err := written(src.file, r.Size)
	if err != nil {
		return fmt.Errorf("snapshot %q: %w", r.Name, kindOf(err))
	}
	src.free = u.Free
	return p.checkShared(r, need, u.Free)
}

func (p *Pool) checkShared(r Record, need, free int64) error {
	if need > free {
		return fmt.Errorf("snapshot %q on node %s: the pool %s has %d bytes available, and %d that it would share may be overwritten: %w",
			r.Name, p.node, p.dir, free, need, fault.PoolFull)
	}
	return nil
}

// releaseUnwritten punches the unwritten extents out of a snapshot. They read as zeros either way, and
// while they were shared, the volume could write to them only with new space.
func (p *Pool) releaseUnwritten(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	mappings, _, err := extents(f, st.Size())
	if err != nil {
		return err
	}
	for _, m := range mappings {
		if m.flags&fiemapUnwritten == 0 {
			continue
		}
		p.disk.step("punch")
		err := retryEINTR(func() error {
			return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, m.start, m.length)
		})
		if err != nil {
			return fmt.Errorf("release the unwritten extents of %s: %w", f.Name(), err)
		}
	}
	return nil
}
