package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

func (p *Pool) delete(ctx context.Context, ref pool.Ref, damagedToo bool) error {
	unlock, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := p.entry(ref)
	if err != nil {
		return err
	}
	if e.Kind == pool.Newer || (e.Kind == pool.Damaged && !damagedToo) {
		return p.Refuse(e)
	}
	switch _, _, err := sizes(p.file(ref, imageExt)); {
	case errors.Is(err, fs.ErrNotExist):
		if err := p.checkNoLoop(ref); err != nil {
			return err
		}
		return p.deleteError(ref, p.erase(ref))
	case err != nil:
		return fmt.Errorf("delete %s: remove that file by hand: %w: %w", p.Describe(ref), fault.VolumeDamaged, err)
	}
	image, user, err := p.lockImage(ref)
	if err != nil {
		return err
	}
	if user != "" {
		return fmt.Errorf("delete %s: it is in use by %s; stop that first: %w", p.Describe(ref), user, fault.VolumeInUse)
	}
	defer func() { _ = image.Close() }()
	if err := p.checkRemovable(ref); err != nil {
		return err
	}
	if err := p.writeTombstone(ref); err != nil {
		return p.deleteError(ref, err)
	}
	return p.deleteError(ref, p.erase(ref))
}

// checkNoLoop refuses an object without an image if a loop device still has that image: the bytes are there
// for as long as the device is, and the record is needed to restore the volume.
func (p *Pool) checkNoLoop(ref pool.Ref) error {
	loops, err := p.loopsOf(ref.ID)
	if err == nil && len(loops) > 0 {
		err = fmt.Errorf("its image was removed, but %s still has it; copy it from there or detach it first: %w", devices(loops), fault.VolumeInUse)
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", p.Describe(ref), err)
	}
	return nil
}

// checkRemovable refuses an immutable image before the tombstone is written. Afterwards the object would
// be deleted for every caller while its image occupies space.
func (p *Pool) checkRemovable(ref pool.Ref) error {
	f, err := os.OpenFile(p.file(ref, imageExt), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("delete %s: its image cannot be removed; is it immutable (lsattr)? %w", p.Describe(ref), pool.KindOf(err))
	}
	return f.Close()
}

// writeTombstone marks an object as deleted: from here on every call answers fault.NotFound, and recover
// continues the delete. It renames the record, because on a full disk nothing can be written. Where the
// rename itself lacks space (a full directory block) there is no tombstone:
// if the process dies after the removal of the image, the remaining record is reported as NoImage, and a
// repeated delete removes it.
func (p *Pool) writeTombstone(ref pool.Ref) error {
	err := p.disk.rename(p.file(ref, recordExt), p.file(ref, tombstoneExt))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	return err
}

func (p *Pool) deleteError(ref pool.Ref, err error) error {
	if err != nil {
		return fmt.Errorf("delete %s: %w: %w", p.Describe(ref), fault.Uncertain, err)
	}
	return nil
}
