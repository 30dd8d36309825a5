package files

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// sharedBlock is the block size of every new volume's device. To a file that shares blocks, xfs does direct
// I/O only in units of 4096 bytes, and the kernel chooses that block size for a loop device as soon as its
// file shares blocks. It is the same without reflinks, because a pool can be moved to another disk.
const sharedBlock = 4096

// Create makes a volume and returns when all its space is reserved, its content is complete, and both
// are durable. fault.Conflict when the name is taken, fault.Exhausted when the space does not suffice,
// fault.OutOfRange for an impossible size or one below the source's, fault.NotFound without the
// source, fault.NoCopies for a source in a pool without reflinks; then no file remains, also when the
// context ends. fault.Uncertain when a failed create could not be undone.
func (p *Pool) Create(ctx context.Context, v pool.NewVolume) (pool.Record, error) {
	r, err := v.Record()
	if err != nil {
		return pool.Record{}, err
	}
	r.BlockSize = sharedBlock
	if v.From != (pool.From{}) {
		return p.createCopy(ctx, r, v.From.Ref())
	}
	unlock, err := p.enter(ctx)
	if err != nil {
		return pool.Record{}, err
	}
	defer unlock()
	if err := p.admit(r); err != nil {
		return pool.Record{}, err
	}
	if err := p.build(ctx, &r); err != nil {
		return pool.Record{}, p.undoCreate(err, r)
	}
	return r, nil
}

// admit refuses a volume whose name is taken or that exceeds the available space. The check is exact,
// because the caller holds the lock until the space is reserved.
func (p *Pool) admit(r pool.Record) error {
	entries, err := p.recover()
	if err != nil {
		return err
	}
	if err := p.CheckFree(entries, pool.Volumes, r.Name); err != nil {
		return err
	}
	return p.checkSpace(entries, r)
}

// checkSpace refuses a volume that is larger than the available space.
func (p *Pool) checkSpace(entries []pool.Entry, r pool.Record) error {
	u, err := p.measure(entries)
	if err != nil {
		return err
	}
	if r.Size > u.Free {
		return fmt.Errorf("create volume %q of %d bytes on node %s: the pool %s has %d bytes available: %w", r.Name, r.Size, p.Node(), p.dir, u.Free, fault.PoolFull)
	}
	return nil
}

// build does the three steps of a create. The record in state Creating is durable before the image exists,
// so recover identifies and removes the image of a killed process. The image is durable before the record
// is Ready, so a volume that was ever reported is reserved in full.
func (p *Pool) build(ctx context.Context, r *pool.Record) error {
	ref := r.Ref()
	if err := p.writeRecord(ref, *r); err != nil {
		return err
	}
	if err := p.disk.createImage(ctx, p.file(ref, imageExt), r.Size); err != nil {
		return err
	}
	return p.ready(r)
}

// ready is the last step of every create.
func (p *Pool) ready(r *pool.Record) error {
	r.State = pool.Ready
	return p.writeRecord(r.Ref(), *r)
}

// undoCreate removes the files of a failed create and returns its cause. It ignores the context of the
// call: a create that was cancelled leaves no files either.
func (p *Pool) undoCreate(cause error, r pool.Record) error {
	cause = fmt.Errorf("create %s for the name %q: %w", p.Describe(r.Ref()), r.Name, pool.KindOf(cause))
	if err := p.erase(r.Ref()); err != nil {
		return fmt.Errorf("%w: %w", fault.Uncertain, errors.Join(cause, err))
	}
	return cause
}
