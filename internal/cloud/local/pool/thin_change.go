package pool

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Create is Pool.Create. A copy is an instant, also of a volume in use.
func (p *ThinPool) Create(ctx context.Context, v NewVolume) (Record, error) {
	r, err := v.record()
	if err != nil {
		return Record{}, err
	}
	return within(ctx, p, func(s thinState) (Record, error) {
		r.Size, r.BlockSize = s.roundUp(r.Size), 0
		if err := p.checkFree(s.entries(), volumes, r.Name); err != nil {
			return Record{}, err
		}
		if v.Limit > 0 && r.Size > v.Limit {
			return Record{}, fmt.Errorf("create volume %q: in whole extents of %d it has %d bytes, above the limit %d: %w", v.Name, s.pool.Extent, r.Size, v.Limit, fault.OutOfRange)
		}
		from := Entry{Size: r.Size}
		if v.From != (From{}) {
			var err error
			if from, err = p.whole(s, v.From.ref()); err != nil {
				return Record{}, err
			}
			r.Source = string(from.ref().folder) + "/" + string(from.ID)
		}
		if from.Size > r.Size {
			return Record{}, fmt.Errorf("create volume %q of %d bytes: its source has %d: %w", v.Name, r.Size, from.Size, fault.OutOfRange)
		}
		return p.create(s, r, from)
	})
}

// roundUp returns a size in whole extents.
func (s thinState) roundUp(size int64) int64 {
	return (size + s.pool.Extent - 1) / s.pool.Extent * s.pool.Extent
}

// CreateSnapshot is Pool.CreateSnapshot. The volume may be in use: LVM suspends it for an instant, and a mounted
// filesystem is frozen then. The whole size of the volume is reserved for the snapshot.
func (p *ThinPool) CreateSnapshot(ctx context.Context, req NewSnapshot) (Record, error) {
	r, err := req.record()
	if err != nil {
		return Record{}, err
	}
	return within(ctx, p, func(s thinState) (Record, error) {
		if err := p.checkFree(s.entries(), snapshots, r.Name); err != nil {
			return Record{}, err
		}
		from, err := p.whole(s, volumeRef(req.Volume))
		if err != nil {
			return Record{}, err
		}
		r.Size = from.Size
		return p.create(s, r, from)
	})
}

// create makes the logical volume of a record, as a snapshot of from if that has an id. Until the tag is removed,
// each step can be followed by the end of the process, or fail: recover removes the volume.
func (p *ThinPool) create(s thinState, r Record, from Entry) (Record, error) {
	r.State = Ready
	err := p.checkSpace(s, s.chunks(r.Size), 1, fault.PoolFull)
	if err == nil {
		err = p.makeLV(r, from)
	}
	if err == nil {
		err = checkOtherNames(p, p.others(), r)
	}
	target := p.group + "/" + lvName(r.ref())
	if err == nil && from.Size < r.Size {
		_, err = p.lvm("lvextend", "-y", "-L", bytesArg(r.Size), target)
	}
	if err == nil {
		if _, err = p.lvm("lvchange", "--deltag", creatingTag, target); err != nil {
			err = fmt.Errorf("%w: %w", fault.Uncertain, err)
		}
	}
	if err == nil {
		return r, nil
	}
	if s, readErr := p.read(); readErr == nil {
		p.recover(&s)
	}
	return Record{}, fmt.Errorf("create %s for the name %q: %w", p.name(r.ref()), r.Name, err)
}

// makeLV makes a logical volume with its tags. It is not active, and LVM does not activate it by itself. There is nothing
// to wipe: a thin volume reads as zeros or as its source.
func (p *ThinPool) makeLV(r Record, from Entry) error {
	tags, err := recordTags(r)
	if err != nil {
		return err
	}
	args := []string{"lvcreate", "-y", "-an", "-ky", "-n", lvName(r.ref()), "--addtag", creatingTag}
	for _, tag := range tags {
		args = append(args, "--addtag", tag)
	}
	if from.ID == "" {
		args = append(args, "-Wn", "-V", bytesArg(r.Size), "-T", p.group+"/"+p.thin)
	} else {
		args = append(args, "-s", p.group+"/"+from.File)
	}
	_, err = p.lvm(args...)
	return err
}

func bytesArg(n int64) string { return strconv.FormatInt(n, 10) + "b" }

// remove removes a logical volume. Its name has the 128 random bits of the id, so it is no other one's.
func (p *ThinPool) remove(v logicalVolume) error {
	_, err := p.lvm("lvremove", "-y", p.group+"/"+v.Name)
	return err
}

func (p *ThinPool) delete(ctx context.Context, ref objectRef, damagedToo bool) error {
	_, err := within(ctx, p, func(s thinState) (struct{}, error) {
		e, err := p.entry(s, ref)
		switch v := s.find(ref); {
		case err != nil:
			return struct{}{}, err
		case e.Kind == Newer || (e.Kind != Whole && !damagedToo):
			return struct{}{}, p.refuse(e)
		case v.Active != "":
			return struct{}{}, fmt.Errorf("delete %s: it is in use by %s; stop that first: %w", p.name(ref), p.device(*v), fault.VolumeInUse)
		default:
			err = p.remove(*v)
		}
		if err != nil {
			return struct{}{}, fmt.Errorf("delete %s: %w: %w", p.name(ref), fault.Uncertain, err)
		}
		return struct{}{}, nil
	})
	return err
}

// Grow makes a volume at least this large, in whole extents, and returns its size. It never shrinks. fault.OutOfRange
// when the space does not suffice; then nothing has changed.
func (p *ThinPool) Grow(ctx context.Context, id ID, size int64) (int64, error) {
	return within(ctx, p, func(s thinState) (int64, error) {
		e, err := p.whole(s, volumeRef(id))
		if err != nil || size <= e.Size {
			return e.Size, err
		}
		want, err := roundUp(size)
		if err == nil {
			want = s.roundUp(want)
			err = p.checkSpace(s, s.chunks(want)-s.chunks(e.Size), 0, fault.OutOfRange)
		}
		if err == nil {
			_, err = p.lvm("lvextend", "-y", "-L", bytesArg(want), p.group+"/"+e.File)
		}
		if err != nil {
			return 0, fmt.Errorf("grow volume %s from %d to %d bytes: %w", p.Handle(id), e.Size, size, err)
		}
		return want, nil
	})
}

// Activate makes the device of a volume. It is in use until Deactivate. A device that is there gets the size that the
// volume has, and is resumed if a killed command of LVM has left it suspended.
func (p *ThinPool) Activate(ctx context.Context, id ID) error {
	_, err := within(ctx, p, func(s thinState) (struct{}, error) {
		e, err := p.whole(s, volumeRef(id))
		if err != nil {
			return struct{}{}, err
		}
		args := []string{"lvchange", "-y", "-ay", "-K"}
		if s.find(e.ref()).Active != "" {
			args = []string{"lvchange", "-y", "--refresh"}
		}
		_, err = p.lvm(append(args, p.group+"/"+e.File)...)
		return struct{}{}, err
	})
	return err
}

// Deactivate removes the device of a volume. fault.Busy while a program has it open or it is mounted. Without a
// device or a volume it does nothing.
func (p *ThinPool) Deactivate(ctx context.Context, id ID) error {
	_, err := within(ctx, p, func(s thinState) (struct{}, error) {
		v := s.find(volumeRef(id))
		if v == nil || v.Active == "" {
			return struct{}{}, nil
		}
		if v.Open == "open" {
			return struct{}{}, fmt.Errorf("%s is open or mounted: %w", p.device(*v), fault.Busy)
		}
		_, err := p.lvm("lvchange", "-y", "-an", p.group+"/"+v.Name)
		return struct{}{}, err
	})
	return err
}
