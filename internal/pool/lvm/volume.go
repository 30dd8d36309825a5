package lvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// Create makes a volume and returns when all of it reads as zeros. When the context ends before that, it returns fault.Uncertain, the
// zeroing goes on, and FindByName waits for it. The next Create for the name continues a create whose process was killed.
func (p *Pool) Create(ctx context.Context, v pool.NewVolume) (pool.Record, error) {
	r, err := v.Record()
	if err != nil {
		return pool.Record{}, err
	}
	if v.From != (pool.From{}) {
		return pool.Record{}, p.NoCopies(r, isGroup)
	}
	j, err := within(ctx, p, func(s groupState) (*zeroJob, error) {
		r.Size, r.BlockSize, r.State = s.roundUp(r.Size), 0, pool.Ready
		if most := min(cmp.Or(v.Limit, pool.LargestVolume), pool.LargestVolume); r.Size > most {
			return nil, fmt.Errorf("create volume %q: in whole extents of %d it has %d bytes, above the limit %d: %w", v.Name, s.Extent, r.Size, most, fault.OutOfRange)
		}
		lv, err := p.allot(s, &r)
		if err != nil {
			return nil, fmt.Errorf("create %s for the name %q: %w", p.Describe(r.Ref()), r.Name, err)
		}
		return p.zero(lv, func(l logicalVolume) error {
			return p.change("lvchange", "--deltag", creatingTag, "--deltag", zeroedTag+bytesOf(l.zeroed()), "--addtag", blankTag+bytesOf(l.Size), p.target(l.Name))
		})
	})
	if err == nil {
		err = p.wait(ctx, j)
	}
	if err != nil {
		return pool.Record{}, err
	}
	return r, nil
}

// allot makes the logical volume of a record, or takes over that of an interrupted create for the name if it has the size.
func (p *Pool) allot(s groupState, r *pool.Record) (logicalVolume, error) {
	entries := s.entries()
	for _, e := range pool.Named(entries, r.Name) {
		v := s.find(e.File)
		switch {
		case e.Kind == pool.UnderWay:
			return logicalVolume{}, p.Refuse(e)
		case e.Kind != pool.Unfinished:
			return logicalVolume{}, p.CheckFree(entries, pool.Volumes, r.Name)
		case v.Size == r.Size:
			*r = e.Record
			return *v, nil
		}
		if err := v.checkAlone(); err != nil {
			return logicalVolume{}, err
		}
		if err := p.remove(v.Name); err != nil {
			return logicalVolume{}, fmt.Errorf("%w: %w", fault.Uncertain, err)
		}
		s.freeExtents += v.Size / s.Extent
	}
	err := p.full(s)
	if err == nil {
		err = p.checkSpace(s, r.Size, fault.PoolFull)
	}
	if err != nil {
		return logicalVolume{}, err
	}
	tags, err := recordTags(*r)
	if err == nil {
		err = p.makeLV(VolumeName(r.ID), r.Size, tags...)
	}
	if err != nil {
		return logicalVolume{}, err
	}
	return p.made(VolumeName(r.ID))
}

// makeLV makes a logical volume with its tags. LVM does not activate it, now or later, and does not read or wipe its extents.
func (p *Pool) makeLV(name string, size int64, tags ...string) error {
	args := []string{"-y", "-an", "-ky", "-Wn", "-Zn", "--type", "linear", "--alloc", "normal", "-n", name, "-L", bytesArg(size), "--addtag", creatingTag}
	for _, tag := range tags {
		args = append(args, "--addtag", tag)
	}
	return p.change("lvcreate", append(args, p.group)...)
}

// made reads a logical volume that was just made.
func (p *Pool) made(name string) (logicalVolume, error) {
	s, err := p.read()
	if err != nil {
		return logicalVolume{}, fmt.Errorf("%w: %w", fault.Uncertain, err)
	}
	v := s.find(name)
	if v == nil {
		return logicalVolume{}, fmt.Errorf("%s was made, and LVM does not list it: %w", p.target(name), fault.Uncertain)
	}
	return *v, nil
}

// remove removes a logical volume. Its name has the 128 random bits of the id, so it is no other one's.
func (p *Pool) remove(name string) error { return p.change("lvremove", "-y", p.target(name)) }

const isGroup = "is a volume group of LVM"

// CreateSnapshot is fault.NoCopies.
func (p *Pool) CreateSnapshot(_ context.Context, req pool.NewSnapshot) (pool.Record, error) {
	return pool.Record{}, p.NoCopies(pool.Record{Name: req.Name, Volume: req.Volume}, isGroup)
}

// ReadBlocks is fault.NoCopies.
func (p *Pool) ReadBlocks(context.Context, pool.BlocksRequest, func(int64, []pool.Range) error) error {
	return p.NoBlocks()
}

func (p *Pool) delete(ctx context.Context, ref pool.Ref, damagedToo bool) error {
	_, err := within(ctx, p, func(s groupState) (struct{}, error) {
		e, err := p.entry(s, ref)
		v, g := s.find(VolumeName(ref.ID)), s.find(growthName(ref.ID))
		switch {
		case err != nil && (g == nil || ref.IsSnapshot()): // the pool has no snapshots
			return struct{}{}, err
		case g != nil && g.beingZeroed():
			return struct{}{}, fmt.Errorf("delete %s: it is growing: %w", p.Describe(ref), fault.Busy)
		case v == nil: // the volume that was growing was removed by hand
			return struct{}{}, p.remove(g.Name)
		case e.Kind == pool.UnderWay || (e.Kind != pool.Whole && !damagedToo):
			return struct{}{}, p.Refuse(e)
		case v.Active != "" && e.Kind != pool.Unfinished:
			return struct{}{}, fmt.Errorf("delete %s: it is in use by %s; stop that first: %w", p.Describe(ref), p.device(*v), fault.VolumeInUse)
		}
		if err := v.checkAlone(); err != nil {
			return struct{}{}, fmt.Errorf("delete %s: %w", p.Describe(ref), err)
		}
		if g != nil {
			err = p.remove(g.Name)
		}
		if err == nil {
			err = p.remove(v.Name)
		}
		if err != nil {
			return struct{}{}, fmt.Errorf("delete %s: %w: %w", p.Describe(ref), fault.Uncertain, err)
		}
		return struct{}{}, nil
	})
	return err
}

// Activate makes the device of a volume, which is in use until Deactivate. It updates the size of an existing device.
func (p *Pool) Activate(ctx context.Context, id pool.ID) error {
	_, err := within(ctx, p, func(s groupState) (struct{}, error) {
		e, err := p.whole(s, id)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, p.activate(*s.find(e.File))
	})
	return err
}

func (p *Pool) activate(v logicalVolume) error {
	if v.Active != "" {
		return p.change("lvchange", "-y", "--refresh", p.target(v.Name))
	}
	return p.change("lvchange", "-y", "-ay", "-K", p.target(v.Name))
}

// Deactivate removes the device of a volume. fault.Busy while a program has it open or it is mounted. Without a
// device or a volume it does nothing.
func (p *Pool) Deactivate(ctx context.Context, id pool.ID) error {
	_, err := within(ctx, p, func(s groupState) (struct{}, error) {
		v := s.find(VolumeName(id))
		switch {
		case v == nil || v.Active == "":
			return struct{}{}, nil
		case v.broken != nil:
			return struct{}{}, v.broken
		case v.Open == "open":
			return struct{}{}, fmt.Errorf("%s is open or mounted: %w", p.device(*v), fault.Busy)
		}
		return struct{}{}, p.change("lvchange", "-y", "-an", p.target(v.Name))
	})
	return err
}

// MarkWritten records that a volume is about to be written. From then on NeverWritten is false.
func (p *Pool) MarkWritten(ctx context.Context, id pool.ID) error {
	_, err := within(ctx, p, func(s groupState) (struct{}, error) {
		e, err := p.whole(s, id)
		if err != nil {
			return struct{}{}, err
		}
		for _, tag := range s.find(e.File).tags() {
			if strings.HasPrefix(tag, blankTag) {
				err = errors.Join(err, p.change("lvchange", "--deltag", tag, p.target(e.File)))
			}
		}
		return struct{}{}, err
	})
	return err
}
