package files

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/extents"
)

// Use opens the image of a Whole volume, completes an interrupted growth, reserves the holes of the image,
// and runs f under the pool's lock. The open file has a shared flock: while a loop device, for example,
// holds it open, the volume cannot be removed. f must not retain the *os.File; Use closes it.
func (p *Pool) Use(ctx context.Context, id pool.ID, f func(image *os.File, r pool.Record) error) error {
	unlock, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	image, r, err := p.openImage(pool.VolumeRef(id), os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { _ = image.Close() }()
	if r, err = p.finishGrowth(ctx, image, r); err != nil {
		return err
	}
	// No sync: a power loss ends every use, and the next Use fills the holes again.
	if err := p.disk.fill(ctx, image, r.Size); err != nil {
		return fmt.Errorf("volume %s has lost reserved space and the disk of the pool is full; free some space there: %w", p.Handle(id), pool.KindOf(err))
	}
	return f(image, r)
}

// Reserve reserves the holes that an image got while it was in use.
func (p *Pool) Reserve(ctx context.Context, id pool.ID) error {
	return p.Use(ctx, id, func(*os.File, pool.Record) error { return nil })
}

// Grow makes a volume at least this large, rounded up to SizeStep, and returns its size. It never
// shrinks. The record states the new size before any space is reserved, so the next Grow or Use continues
// an interrupted growth. fault.OutOfRange when the space does not suffice; then nothing has changed.
func (p *Pool) Grow(ctx context.Context, id pool.ID, size int64) (int64, error) {
	if size > pool.LargestVolume {
		return 0, fmt.Errorf("grow volume %s to %d bytes: the largest is %d: %w", p.Handle(id), size, pool.LargestVolume, fault.OutOfRange)
	}
	unlock, err := p.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	image, r, err := p.openImage(pool.VolumeRef(id), os.O_RDWR)
	if err != nil {
		return 0, err
	}
	defer func() { _ = image.Close() }()
	if r, err = p.finishGrowth(ctx, image, r); err != nil {
		return 0, err
	}
	if size <= r.Size {
		return r.Size, nil
	}
	want, err := pool.RoundUp(size)
	if err != nil {
		return 0, err
	}
	if err := p.reserveGrowth(&r, want); err != nil {
		return 0, err
	}
	if r, err = p.finishGrowth(ctx, image, r); err != nil {
		return 0, err
	}
	if r.Size < want {
		return 0, fmt.Errorf("grow volume %s to %d bytes: the disk of the pool is full: %w", p.Handle(id), want, fault.PoolFull.Explain(fault.OutOfRange))
	}
	return r.Size, nil
}

// reserveGrowth records the requested size if the available space suffices.
func (p *Pool) reserveGrowth(r *pool.Record, want int64) error {
	entries, err := p.recover()
	if err != nil {
		return err
	}
	u, err := p.measure(entries)
	if err != nil {
		return err
	}
	if want-r.Size > u.Free {
		return fmt.Errorf("grow volume %s from %d to %d bytes: the pool %s has %d bytes available: %w",
			p.Handle(r.ID), r.Size, want, p.dir, u.Free, fault.PoolFull.Explain(fault.OutOfRange))
	}
	r.GrowTo = want
	if err := p.writeRecord(pool.VolumeRef(r.ID), *r); err != nil {
		return fmt.Errorf("grow volume %s: %w", p.Handle(r.ID), pool.KindOf(err))
	}
	return nil
}

// finishGrowth completes a recorded growth, or undoes it if the disk is full. The record is written last each time, so the image is never shorter
// than its record says.
func (p *Pool) finishGrowth(ctx context.Context, image *os.File, r pool.Record) (pool.Record, error) {
	if r.GrowTo == 0 {
		return r, nil
	}
	err := p.disk.reserve(ctx, image, r.GrowTo)
	switch {
	case err == nil:
		r.Size = r.GrowTo
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		// No device has had the new size yet, so the truncation loses no data.
		err = p.disk.truncate(image, r.Size)
	}
	if err == nil {
		r.GrowTo = 0
		err = p.writeRecord(pool.VolumeRef(r.ID), r)
	}
	if err != nil {
		return r, fmt.Errorf("grow volume %s: %w", p.Handle(r.ID), pool.KindOf(err))
	}
	return r, nil
}

// openImage opens the image of a Whole volume or snapshot with a shared flock. The caller holds the pool's lock.
func (p *Pool) openImage(ref pool.Ref, flag int) (*os.File, pool.Record, error) {
	e, err := p.entry(ref)
	if err != nil {
		return nil, pool.Record{}, err
	}
	if e.Kind != pool.Whole {
		return nil, pool.Record{}, p.Refuse(e)
	}
	f, err := os.OpenFile(p.file(ref, imageExt), flag|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, pool.Record{}, fmt.Errorf("open %s: %w", p.Describe(ref), pool.KindOf(err))
	}
	if err := pool.Flock(f, unix.LOCK_SH); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, pool.Record{}, fmt.Errorf("a foreign program has locked the image of %s: %w", p.Describe(ref), fault.Busy)
		}
		return nil, pool.Record{}, fmt.Errorf("lock %s: %w", p.Describe(ref), pool.KindOf(err))
	}
	return f, e.Record, nil
}

// NeverWritten reports whether the filesystem proves that no byte of an image was ever written: all of its
// extents are unwritten, so the image reads as zeros. False means that there is no proof.
func (p *Pool) NeverWritten(id pool.ID) (bool, error) {
	f, err := p.openToRead(pool.VolumeRef(id))
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	n, err := extents.Written(f, math.MaxInt64)
	return err == nil && n == 0, pool.KindOf(err)
}

// InUse returns what uses the image of an entry, or "" if it is unused. A loop device still has the data of an image that was removed.
func (p *Pool) InUse(ctx context.Context, e pool.Entry) (string, error) {
	unlock, err := p.enter(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if e.Kind == pool.NoImage {
		loops, err := p.loopsOf(e.ID)
		return devices(loops), err
	}
	f, user, err := p.lockImage(e.Ref())
	if f != nil {
		_ = f.Close()
	}
	return user, err
}

// lockImage acquires the exclusive flock of an image, or returns its user. A loop device of the node
// program keeps its shared flock after that program has ended. A loop device of another program has none,
// so lockImage reads the kernel's list too.
func (p *Pool) lockImage(ref pool.Ref) (f *os.File, user string, err error) {
	f, err = os.OpenFile(p.file(ref, imageExt), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", fmt.Errorf("open %s: %w", p.Describe(ref), pool.KindOf(err))
	}
	loops, err := p.loopsOf(ref.ID)
	if err == nil && len(loops) == 0 {
		if err = pool.Flock(f, unix.LOCK_EX); err == nil {
			return f, "", nil
		}
	}
	_ = f.Close()
	switch {
	case len(loops) > 0:
		return nil, devices(loops), nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, "an open file", nil
	}
	return nil, "", fmt.Errorf("lock %s: %w", p.Describe(ref), pool.KindOf(err))
}

// devices returns the paths of loop devices as one text, or "" if there are none.
func devices(loops []string) string {
	if len(loops) == 0 {
		return ""
	}
	return "/dev/" + strings.Join(loops, ", /dev/")
}

// loopsOf returns the loop devices whose backing file has the base name of the image. The path may differ
// between mount namespaces, but the name has 128 random bits.
func (p *Pool) loopsOf(id pool.ID) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(p.sysDir, "loop*", "loop", "backing_file"))
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w: %w", fault.InvalidArgument, err)
	}
	var loops []string
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // detached after the glob
		}
		backing := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), " (deleted)")
		if filepath.Base(backing) == id.ImageName() {
			loops = append(loops, filepath.Base(filepath.Dir(filepath.Dir(name))))
		}
	}
	return loops, nil
}
