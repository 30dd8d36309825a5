package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

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
	if e.Kind == Whole {
		// From here on the volume is gone for everybody, and whoever reads this record goes on.
		r := e.Record
		r.State, r.GrowTo = Deleting, 0
		if err := p.writeRecord(r); err != nil {
			return p.deleted(id, err)
		}
	}
	return p.deleted(id, p.erase(id))
}

func (p *Pool) deleted(id ID, err error) error {
	if err != nil {
		return fmt.Errorf("delete volume %s: %w: %w", p.Handle(id), fault.Uncertain, err)
	}
	return nil
}
