package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Delete removes the volume with exactly this id, also if its record or its image is missing.
// fault.NotFound when there is neither, fault.Precondition when it is in use, or damaged so that
// somebody should look at it first. fault.Uncertain when the disk failed half-way; the same call
// again goes on.
func (p *Pool) Delete(ctx context.Context, id ID) error { return p.delete(ctx, id, false) }

// Remove is Delete for an operator who has looked: it takes damaged volumes too. It refuses what is
// in use and what is not a regular file.
func (p *Pool) Remove(ctx context.Context, id ID) error { return p.delete(ctx, id, true) }

func (p *Pool) delete(ctx context.Context, id ID, damagedToo bool) error {
	unlock, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := p.entry(id)
	if err != nil {
		return err
	}
	if e.Kind == Damaged && !damagedToo {
		return p.refuse(e)
	}
	switch _, _, err := sizes(p.ImagePath(id)); {
	case errors.Is(err, fs.ErrNotExist):
		return p.deleted(id, p.erase(id))
	case err != nil:
		return fmt.Errorf("delete volume %s: remove that file by hand: %w: %w", p.Handle(id), fault.Precondition, err)
	}
	image, user, err := p.lockImage(id)
	if err != nil {
		return err
	}
	if user != "" {
		return fmt.Errorf("delete volume %s: it is in use by %s; unmount it first: %w", p.Handle(id), user, fault.Precondition)
	}
	defer func() { _ = image.Close() }()
	if err := p.mark(id); err != nil {
		return p.deleted(id, err)
	}
	return p.deleted(id, p.erase(id))
}

// mark says that a volume is being deleted: from here on it is gone for everybody, and whoever looks
// next goes on. It renames the record, since on a full disk nothing can be written, least of all by
// who is about to make room. Where not even that has room (a folder without a gap, a btrfs without
// metadata) there is no mark: if the process dies after the image is gone, the record that stays is
// reported, and the same delete again removes it.
func (p *Pool) mark(id ID) error {
	err := p.disk.rename(p.path(volumesDir, id.recordName()), p.path(volumesDir, id.markName()))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	return err
}

func (p *Pool) deleted(id ID, err error) error {
	if err != nil {
		return fmt.Errorf("delete volume %s: %w: %w", p.Handle(id), fault.Uncertain, err)
	}
	return nil
}
