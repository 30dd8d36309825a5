package pool

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// source is the image that a volume or a snapshot is cloned from.
type source struct {
	ref    objectRef
	record Record
	file   *os.File
	free   int64 // what the pool had available when a snapshot was admitted
}

// createCopy makes the volume or the snapshot of this record with the content of from, by reflink under the pool's lock.
func (p *Pool) createCopy(ctx context.Context, r Record, from objectRef) (Record, error) {
	if !p.reflink {
		return Record{}, p.noCopies(r, "is not on an xfs with reflinks")
	}
	unlock, err := p.enter(ctx)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	entries, err := p.recover()
	if err != nil {
		return Record{}, err
	}
	if err := p.checkFree(entries, r.ref().folder, r.Name); err != nil {
		return Record{}, err
	}
	src, err := p.openSource(from)
	if err != nil {
		return Record{}, err
	}
	defer func() { _ = src.file.Close() }()
	if err := p.admitCopy(entries, &r, &src); err != nil {
		return Record{}, err
	}
	return r, p.cloneImage(ctx, &r, src)
}

// openSource opens an image to clone it, also one in use. The pool's lock, which the caller holds, keeps it from being removed.
func (p *Pool) openSource(ref objectRef) (source, error) {
	e, err := p.entry(ref)
	if err != nil {
		return source{}, err
	}
	if e.Kind != Whole {
		return source{}, p.refuse(e)
	}
	f, err := p.openToRead(ref)
	return source{ref: ref, record: e.Record, file: f}, err
}

func (p *Pool) openToRead(ref objectRef) (*os.File, error) {
	f, err := os.OpenFile(p.file(ref, imageExt), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.name(ref), kindOf(err))
	}
	return f, nil
}

// admitCopy sets the fields of the record that the source determines, and refuses a copy that does not fit.
func (p *Pool) admitCopy(entries []Entry, r *Record, src *source) error {
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
	err := p.writeRecord(r.ref(), *r)
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
