package pool

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// source is the image that a volume or a snapshot is copied from.
type source struct {
	ref    objectRef
	record Record
	// file holds a flock while the copy runs: an exclusive one prevents the attachment of a volume, a shared
	// one prevents the removal of a snapshot. A reflink needs none, because it runs under the pool's lock.
	file *os.File
}

// createCopy makes the volume or the snapshot of this record with the content of from: by reflink
// under the pool's lock, or else by a job that needs no lock.
func (p *Pool) createCopy(ctx context.Context, r Record, from objectRef) (Record, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return Record{}, err
	}
	j, err := p.beginCopy(ctx, &r, from)
	unlock()
	switch {
	case err != nil:
		return Record{}, err
	case j != nil:
		return j.wait(ctx, p)
	}
	return r, nil
}

// beginCopy admits a copy, then makes it by reflink or returns the job that makes it. Under the lock.
func (p *Pool) beginCopy(ctx context.Context, r *Record, from objectRef) (j *job, err error) {
	entries, err := p.recover()
	if err != nil {
		return nil, err
	}
	// Checked first: a repeated call gets fault.Conflict, also if the source is in use by now.
	if err := p.checkFree(entries, r.ref().folder, r.Name); err != nil {
		return nil, err
	}
	src, err := p.openSource(from)
	if err != nil {
		return nil, err
	}
	defer func() {
		if j == nil {
			_ = src.file.Close()
		}
	}()
	if err := p.admitCopy(entries, r, src); err != nil {
		return nil, err
	}
	if p.reflink {
		return nil, p.cloneImage(ctx, r, src)
	}
	return p.startJob(*r, src)
}

// openSource opens an image to copy from it. The caller holds the pool's lock, so no volume is attached meanwhile.
func (p *Pool) openSource(ref objectRef) (source, error) {
	e, err := p.entry(ref)
	if err != nil {
		return source{}, err
	}
	if e.Kind != Whole {
		return source{}, p.refuse(e)
	}
	src := source{ref: ref, record: e.Record}
	switch {
	case p.reflink:
		src.file, err = p.openToRead(ref)
	case ref.isSnapshot():
		src.file, err = p.openShared(ref)
	default:
		var user string
		src.file, user, err = p.lockImage(ref)
		if err == nil && user != "" {
			err = fmt.Errorf("copy %s: it is in use by %s, and snapshots and clones in the pool %s are copies; stop the pod that uses it, or use a pool on an xfs of its own: %w",
				p.name(ref), user, p.dir, fault.SourceInUse)
		}
	}
	return src, err
}

func (p *Pool) openToRead(ref objectRef) (*os.File, error) {
	f, err := os.OpenFile(p.file(ref, imageExt), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.name(ref), kindOf(err))
	}
	return f, nil
}

func (p *Pool) openShared(ref objectRef) (*os.File, error) {
	f, err := p.openToRead(ref)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_SH); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s is being removed, or a foreign program has locked it: %w: %w", p.name(ref), fault.Busy, err)
	}
	return f, nil
}

// admitCopy sets the fields of the record that the source determines, and refuses a copy that does not fit.
func (p *Pool) admitCopy(entries []Entry, r *Record, src source) error {
	r.BlockSize = src.record.BlockSize
	if r.ref().isSnapshot() {
		r.Size, r.Created = src.record.Size, now()
		return p.admitSnapshot(entries, *r, src)
	}
	if src.record.Size > r.Size {
		return fmt.Errorf("create volume %q of %d bytes: %s has %d: %w", r.Name, r.Size, p.name(src.ref), src.record.Size, fault.OutOfRange)
	}
	r.Source = string(src.ref.folder) + "/" + string(src.ref.id)
	// Space for the whole volume, because it may overwrite every shared block.
	return p.checkSpace(entries, *r)
}

// cloneImage makes a copy by reflink: a record in state Creating, the image, the record in state Ready,
// each durable before the next, as in build.
func (p *Pool) cloneImage(ctx context.Context, r *Record, src source) error {
	err := p.claimName(*r)
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
func (p *Pool) fillClone(ctx context.Context, r Record, src source) (err error) {
	f, err := p.disk.emptyImage(p.file(r.ref(), imageExt))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p.disk.step("clone")
	if err := retryEINTR(func() error { return unix.IoctlFileClone(int(f.Fd()), int(src.file.Fd())) }); err != nil {
		return fmt.Errorf("clone %s: %w", p.name(src.ref), err)
	}
	// After an interrupted growth the image of the source is longer than the volume.
	p.disk.step("truncate image")
	if err := retryEINTR(func() error { return f.Truncate(src.record.Size) }); err != nil {
		return err
	}
	if !r.ref().isSnapshot() {
		return p.disk.reserve(ctx, f, r.Size)
	}
	if err := p.releaseUnwritten(f); err != nil {
		return err
	}
	p.disk.step("sync image")
	return f.Sync()
}
