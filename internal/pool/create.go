package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// From is the source of a new volume's content; the zero value means a blank volume.
type From struct {
	// At most one of the two is set.
	Volume, Snapshot ID
}

func (f From) ref() objectRef {
	if f.Snapshot != "" {
		return snapshotRef(f.Snapshot)
	}
	return volumeRef(f.Volume)
}

// sharedBlock is the block size of every new volume's device. To a file that shares blocks, xfs does direct
// I/O only in units of 4096 bytes, and the kernel chooses that block size for a loop device as soon as its
// file shares blocks. It is the same without reflinks, because a pool can be moved to another disk.
const sharedBlock = 4096

// NewVolume is a request for a volume.
type NewVolume struct {
	// Name is unique within the pool.
	Name string
	// Size is rounded up to SizeStep, in a GroupPool to whole extents.
	Size int64
	// Limit is what the rounded size may be; 0: any.
	Limit int64
	// From is what the content is copied from. The size may be larger than the source's.
	From From
	Tags []Pair
}

// Create makes a volume and returns when all its space is reserved, its content is complete, and both
// are durable. fault.Conflict when the name is taken, fault.Exhausted when the space does not suffice,
// fault.OutOfRange for an impossible size or one below the source's, fault.NotFound without the
// source, fault.NoCopies for a source in a pool without reflinks; then no file remains, also when the
// context ends. fault.Uncertain when a failed create could not be undone.
func (p *Pool) Create(ctx context.Context, v NewVolume) (Record, error) {
	r, err := v.record()
	if err != nil {
		return Record{}, err
	}
	if v.From != (From{}) {
		return p.createCopy(ctx, r, v.From.ref())
	}
	unlock, err := p.enter(ctx)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	if err := p.admit(r); err != nil {
		return Record{}, err
	}
	if err := p.build(ctx, &r); err != nil {
		return Record{}, p.undoCreate(err, r)
	}
	return r, nil
}

// record returns the first record of a new volume.
func (v NewVolume) record() (Record, error) {
	size, err := roundUp(v.Size)
	if err == nil {
		if nameErr := checkName(v.Name); nameErr != nil {
			err = fmt.Errorf("%w: %w", fault.InvalidArgument, nameErr)
		}
	}
	if err != nil {
		return Record{}, fmt.Errorf("create volume %q: %w", v.Name, err)
	}
	return Record{ID: NewID(), Name: v.Name, Size: size, State: Creating, Created: now(), BlockSize: sharedBlock, Tags: v.Tags}, nil
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// admit refuses a volume whose name is taken or that exceeds the available space. The check is exact,
// because the caller holds the lock until the space is reserved.
func (p *Pool) admit(r Record) error {
	entries, err := p.recover()
	if err != nil {
		return err
	}
	if err := p.checkFree(entries, volumes, r.Name); err != nil {
		return err
	}
	return p.checkSpace(entries, r)
}

// checkSpace refuses a volume that is larger than the available space.
func (p *Pool) checkSpace(entries []Entry, r Record) error {
	u, err := p.measure(entries)
	if err != nil {
		return err
	}
	if r.Size > u.Free {
		return fmt.Errorf("create volume %q of %d bytes on node %s: the pool %s has %d bytes available: %w", r.Name, r.Size, p.node, p.dir, u.Free, fault.PoolFull)
	}
	return nil
}

// build does the three steps of a create. The record in state Creating is durable before the image exists,
// so recover identifies and removes the image of a killed process. The image is durable before the record
// is Ready, so a volume that was ever reported is reserved in full.
func (p *Pool) build(ctx context.Context, r *Record) error {
	ref := r.ref()
	if err := p.writeRecord(ref, *r); err != nil {
		return err
	}
	if err := p.disk.createImage(ctx, p.file(ref, imageExt), r.Size); err != nil {
		return err
	}
	return p.ready(r)
}

// ready is the last step of every create.
func (p *Pool) ready(r *Record) error {
	r.State = Ready
	return p.writeRecord(r.ref(), *r)
}

func (r Record) ref() objectRef {
	if r.Volume != "" {
		return snapshotRef(r.ID)
	}
	return volumeRef(r.ID)
}

// undoCreate removes the files of a failed create and returns its cause. It ignores the context of the
// call: a create that was cancelled leaves no files either.
func (p *Pool) undoCreate(cause error, r Record) error {
	cause = fmt.Errorf("create %s for the name %q: %w", p.name(r.ref()), r.Name, kindOf(cause))
	if err := p.erase(r.ref()); err != nil {
		return fmt.Errorf("%w: %w", fault.Uncertain, errors.Join(cause, err))
	}
	return cause
}

// roundUp makes a size a multiple of SizeStep and refuses one outside the bounds.
func roundUp(size int64) (int64, error) {
	if size < SmallestVolume || size > LargestVolume {
		return 0, fmt.Errorf("size %d is not between %d and %d: %w", size, SmallestVolume, LargestVolume, fault.OutOfRange)
	}
	return (size + SizeStep - 1) / SizeStep * SizeStep, nil
}

// SourceOf returns what a volume was copied from.
func (r Record) SourceOf() From {
	s, id, _ := parseSource(r.Source)
	switch s {
	case volumes:
		return From{Volume: id}
	case snapshots:
		return From{Snapshot: id}
	}
	return From{}
}
