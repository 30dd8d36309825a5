package yandex

import (
	"context"
	"fmt"
	"maps"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ExpandVolume makes a disk larger, also while it is attached. Where the cloud refuses that, the wish is
// written on the disk and carried out when it is detached.
func (c *Cloud) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	doing := "expand disk " + string(id)
	if !objectID(id) {
		return cloud.Expansion{}, fmt.Errorf("expand volume %.80q: %w: no disk has such an id", id, fault.NotFound)
	}
	if size > largestDisk {
		return cloud.Expansion{}, fmt.Errorf("%s: %s is more than %s, the largest disk: %w", doing, size, largestDisk, fault.OutOfRange)
	}
	ctx, cancel := c.bounded(budget.WithPriority(ctx, budget.Write))
	defer cancel()
	f, err := c.know(ctx, id)
	if err != nil {
		return cloud.Expansion{}, fmt.Errorf("%s: %w", doing, err)
	}
	if size <= f.certain { // disks never shrink, so what it had once is still there
		return c.alreadyLarge(ctx, id, f.certain)
	}
	if size <= f.size { // a size that is shown may be one that an operation is about to take back
		_, d, err := c.after(ctx, id, "")
		switch {
		case err != nil:
			return cloud.Expansion{}, fmt.Errorf("%s: %w", doing, err)
		case d == nil:
			return cloud.Expansion{}, fmt.Errorf("%s: %w: there is no such disk", doing, fault.NotFound)
		case sizeOf(d) >= size:
			return c.hasGrown(ctx, id, sizeOf(d), d)
		}
	}
	want, err := fitted(size, 0, f.diskType, f.block)
	if err != nil {
		return cloud.Expansion{}, fmt.Errorf("%s: %w", doing, err)
	}
	seen, machine, err := c.resize(ctx, id, want, false)
	if machine != "" {
		return cloud.Expansion{}, c.keepWish(ctx, id, want, err)
	}
	if err != nil {
		return cloud.Expansion{}, err
	}
	return c.hasGrown(ctx, id, want, seen.disk)
}

// hasGrown answers with the size that the cloud shows after the last step (C5).
func (c *Cloud) hasGrown(ctx context.Context, id cloud.VolumeID, want cloud.Bytes, d *compute.Disk) (cloud.Expansion, error) {
	var err error
	if d == nil || sizeOf(d) < want {
		d, err = c.disk(ctx, id)
	}
	if err != nil {
		return cloud.Expansion{}, fmt.Errorf("expand disk %s: its growth to %s has ended; look at it after that: %w", id, want, err)
	}
	got := max(want, sizeOf(d)) // the operation that has ended is newer than a look that lags behind
	c.known.change(id, func(f *fact) { f.size, f.certain = got, got })
	if _, wished := growthOf(d.GetLabels()); wished {
		c.unwish(ctx, id, nil)
	}
	return cloud.Expansion{Size: got}, nil
}

// alreadyLarge answers a size at or below the present one, which takes back a wish for more.
func (c *Cloud) alreadyLarge(ctx context.Context, id cloud.VolumeID, seen cloud.Bytes) (cloud.Expansion, error) {
	d, err := c.states.Get(ctx, id)
	if err != nil {
		return cloud.Expansion{}, fmt.Errorf("expand disk %s: %w", id, err)
	}
	if _, wished := growthOf(d.GetLabels()); wished {
		c.unwish(ctx, id, nil)
	}
	return cloud.Expansion{Size: max(sizeOf(d), seen)}, nil // a look may lag behind
}

// resize returns when the disk has the size. machine is the one that keeps it from growing while it is
// attached there. A wish for that size that it fulfils goes with the same operation: each one holds the disk for a
// while, and a pod waits.
func (c *Cloud) resize(ctx context.Context, id cloud.VolumeID, size cloud.Bytes, fulfils bool) (seen sight, machine string, err error) {
	t := &turn{c: c, doing: fmt.Sprintf("expand disk %s to %s", id, size)}
	t.shows = func(s sight) bool { return sizeOf(s.disk) >= size }
	t.send = func(ctx context.Context) (*change, error) {
		body := &compute.UpdateDiskRequest{DiskId: string(id), Size: int64(size), UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"size"}}}
		if fulfils {
			d, err := c.disk(ctx, id)
			if err != nil {
				return nil, err
			}
			if wish, _ := growthOf(d.GetLabels()); wish.size == size { // else it is another one by now
				body.Labels, body.UpdateMask.Paths = unwished(d), append(body.UpdateMask.Paths, "labels")
			}
		}
		op, err := c.begin(ctx, diskKey(id), t.doing, func(ctx context.Context) (*operation.Operation, error) {
			return c.disks.Update(ctx, body)
		})
		ch := changeOf(op, id, kindResize)
		if ch != nil {
			ch.grows = true
		}
		return ch, err
	}
	t.decide = func(ctx context.Context, refusal error) error {
		joined, d, err := c.after(ctx, id, "")
		switch {
		case err != nil:
			return err
		case d == nil:
			return fmt.Errorf("%w: there is no such disk: %w", fault.NotFound, refusal)
		case sizeOf(d) >= size:
			return nil
		case fault.Of(refusal) == fault.InvalidArgument || fault.Of(refusal) == fault.OutOfRange:
			return fmt.Errorf("the disk has %s, and the cloud does not take the new size: %w: %w", sizeOf(d), fault.OutOfRange, refusal)
		case !joined && len(d.GetInstanceIds()) > 0 && answerOf(refusal).says(textAttached):
			machine = d.GetInstanceIds()[0]
			return fmt.Errorf("the cloud does not let it grow while it is attached to the machine %s: %w: %w", machine, fault.Precondition, refusal)
		}
		return t.again(joined, refusal)
	}
	seen, err = t.do(ctx)
	return seen, machine, err
}

// keepWish writes on the disk itself that it is to grow, in place of an earlier wish, and returns what the
// operator is told.
func (c *Cloud) keepWish(ctx context.Context, id cloud.VolumeID, want cloud.Bytes, why error) error {
	if err := c.setWish(ctx, id, growth{size: want}, nil); err != nil {
		return fmt.Errorf("%w: the wish could not be written on the disk: %w: %w", fault.Unavailable, err, why)
	}
	return fmt.Errorf("%w; scale the workload to zero, wait until the VolumeAttachment is gone, then scale it up: "+
		"the disk grows in between (it is labelled %s=%s)", why, labelGrow, growth{size: want}.label())
}

// unwished are the labels of a disk without a wish. The cloud replaces all of them at once.
func unwished(d *compute.Disk) map[string]string {
	labels := maps.Clone(d.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, labelGrow)
	return labels
}

// setWish writes a wish on a disk, or with the zero one takes it off, in place of one that it is meant for; nil: of
// whatever wish. The cloud replaces all labels of a disk at once, so they are read right before each attempt: others
// write labels too.
func (c *Cloud) setWish(ctx context.Context, id cloud.VolumeID, g growth, meant func(d *compute.Disk, wish growth) bool) error {
	wishes := g.size > 0
	t := &turn{c: c, doing: "label disk " + string(id)}
	t.send = func(ctx context.Context) (*change, error) {
		d, err := c.disk(ctx, id)
		if err != nil {
			return nil, err
		}
		labels := unwished(d)
		if g.size > 0 {
			labels[labelGrow] = g.label()
		}
		now, has := growthOf(d.GetLabels())
		switch {
		case meant != nil && (!has || !meant(d, now)): // it is gone or another one by now
			wishes = has
			return nil, nil //nolint:nilnil // nothing is to be done
		case labels[labelGrow] == d.GetLabels()[labelGrow]:
			return nil, nil //nolint:nilnil // as above
		}
		op, err := c.begin(ctx, diskKey(id), t.doing, func(ctx context.Context) (*operation.Operation, error) {
			return c.disks.Update(ctx, &compute.UpdateDiskRequest{
				DiskId: string(id), Labels: labels, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
			})
		})
		return changeOf(op, "", kindLabel), err
	}
	t.decide = func(ctx context.Context, refusal error) error {
		joined, _, err := c.after(ctx, id, "")
		if err != nil || fault.Of(refusal) != fault.Precondition {
			return fmt.Errorf("%w: %w", fault.Unavailable, refusal)
		}
		return t.again(joined, refusal)
	}
	if _, err := t.do(ctx); err != nil {
		return err
	}
	c.known.change(id, func(f *fact) { f.wish = wishes })
	return nil
}
