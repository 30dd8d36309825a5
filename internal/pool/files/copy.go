package files

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/extents"
)

// source is the image that a volume or a snapshot is cloned from.
type source struct {
	ref    pool.Ref
	record pool.Record
	file   *os.File
	free   int64 // what the pool had available when a snapshot was admitted
}

// createCopy makes the volume or the snapshot of this record with the content of from, by reflink under the pool's lock.
func (p *Pool) createCopy(ctx context.Context, r pool.Record, from pool.Ref) (pool.Record, error) {
	if !p.reflink {
		return pool.Record{}, p.NoCopies(r, "is not on an xfs with reflinks")
	}
	unlock, err := p.enter(ctx)
	if err != nil {
		return pool.Record{}, err
	}
	defer unlock()
	entries, err := p.recover()
	if err != nil {
		return pool.Record{}, err
	}
	if err := p.CheckFree(entries, r.Ref().Folder, r.Name); err != nil {
		return pool.Record{}, err
	}
	src, err := p.openSource(from)
	if err != nil {
		return pool.Record{}, err
	}
	defer func() { _ = src.file.Close() }()
	if err := p.admitCopy(entries, &r, &src); err != nil {
		return pool.Record{}, err
	}
	err = p.cloneImage(ctx, &r, src)
	return r, err
}

// openSource opens an image to clone it, also one in use. The pool's lock, which the caller holds, keeps it from being removed.
func (p *Pool) openSource(ref pool.Ref) (source, error) {
	e, err := p.entry(ref)
	if err != nil {
		return source{}, err
	}
	if e.Kind != pool.Whole {
		return source{}, p.Refuse(e)
	}
	f, err := p.openToRead(ref)
	return source{ref: ref, record: e.Record, file: f}, err
}

func (p *Pool) openToRead(ref pool.Ref) (*os.File, error) {
	f, err := os.OpenFile(p.file(ref, imageExt), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.Describe(ref), pool.KindOf(err))
	}
	return f, nil
}

// admitCopy sets the fields of the record that the source determines, and refuses a copy that does not fit.
func (p *Pool) admitCopy(entries []pool.Entry, r *pool.Record, src *source) error {
	r.BlockSize = src.record.BlockSize
	if r.Ref().IsSnapshot() {
		r.Size, r.Created = src.record.Size, pool.Now()
		return p.admitSnapshot(entries, *r, src)
	}
	if src.record.Size > r.Size {
		return fmt.Errorf("create volume %q of %d bytes: %s has %d: %w", r.Name, r.Size, p.Describe(src.ref), src.record.Size, fault.OutOfRange)
	}
	r.Source = string(src.ref.Folder) + "/" + string(src.ref.ID)
	// Space for the whole volume, because it may overwrite every shared block.
	return p.checkSpace(entries, *r)
}

// cloneImage makes a copy by reflink: a record in state Creating, the image, the record in state Ready,
// each durable before the next, as in build.
func (p *Pool) cloneImage(ctx context.Context, r *pool.Record, src source) error {
	err := p.writeRecord(r.Ref(), *r)
	if err == nil {
		err = p.fillClone(ctx, *r, src)
	}
	if err == nil {
		err = p.ready(r)
	}
	if err != nil {
		return p.undoCreate(err, *r)
	}
	return nil
}

// fillClone clones the image of the source durably. FICLONE waits for the running writes of a loop device
// and blocks later ones, so the clone is the image at one instant and has every write completed before.
func (p *Pool) fillClone(ctx context.Context, r pool.Record, src source) (err error) {
	f, err := p.disk.emptyImage(p.file(r.Ref(), imageExt))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p.disk.step("clone")
	if err := pool.RetryEINTR(func() error { return unix.IoctlFileClone(int(f.Fd()), int(src.file.Fd())) }); err != nil {
		return fmt.Errorf("clone %s: %w", p.Describe(src.ref), err)
	}
	// After an interrupted growth the image of the source is longer than the volume.
	p.disk.step("truncate image")
	if err := pool.RetryEINTR(func() error { return f.Truncate(src.record.Size) }); err != nil {
		return err
	}
	if !r.Ref().IsSnapshot() {
		return p.disk.reserve(ctx, f, r.Size)
	}
	if err := p.releaseUnwritten(f); err != nil {
		return err
	}
	p.disk.step("sync image")
	if err := f.Sync(); err != nil {
		return err
	}
	// A volume in use may have been written to since the snapshot was admitted.
	_, allocated, err := sizes(f.Name())
	if err != nil {
		return err
	}
	return p.checkShared(r, allocated, src.free)
}

// CreateSnapshot makes a snapshot of a volume and returns when it is durable. The volume may be in use: the snapshot is
// crash-consistent, it holds what a power loss at that instant would have left.
//
// fault.NoCopies in a pool without reflinks, fault.Conflict when the name is taken, fault.NotFound without the volume,
// fault.Exhausted when there is no space for what the volume may write once its content is shared. After an error no file
// remains.
func (p *Pool) CreateSnapshot(ctx context.Context, req pool.NewSnapshot) (pool.Record, error) {
	r, err := req.Record()
	if err != nil {
		return pool.Record{}, err
	}
	return p.createCopy(ctx, r, pool.VolumeRef(req.Volume))
}

// admitSnapshot refuses a snapshot for which the available space does not suffice: what its volume has written. It takes none
// itself, but an overwrite of a block that it shares allocates a new one.
func (p *Pool) admitSnapshot(entries []pool.Entry, r pool.Record, src *source) error {
	u, err := p.measure(entries)
	if err != nil {
		return err
	}
	need, err := extents.Written(src.file, r.Size)
	if err != nil {
		return fmt.Errorf("snapshot %q: %w", r.Name, pool.KindOf(err))
	}
	src.free = u.Free
	return p.checkShared(r, need, u.Free)
}

func (p *Pool) checkShared(r pool.Record, need, free int64) error {
	if need > free {
		return fmt.Errorf("snapshot %q on node %s: the pool %s has %d bytes available, and %d that it would share may be overwritten: %w",
			r.Name, p.Node(), p.dir, free, need, fault.PoolFull)
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
	_, err = extents.Each(f, st.Size(), func(m extents.Mapping) error {
		if m.Flags&extents.Unwritten == 0 {
			return nil
		}
		p.disk.step("punch")
		return pool.RetryEINTR(func() error {
			return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, m.Start, m.Length)
		})
	})
	if err != nil {
		return fmt.Errorf("release the unwritten extents of %s: %w", f.Name(), err)
	}
	return nil
}
