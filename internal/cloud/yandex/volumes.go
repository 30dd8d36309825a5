package yandex

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// FindVolume returns the disk made under this request name, when it is READY. Several are left to a person, since
// each of them may have been handed out, and so is a disk in ERROR: whether there is anything on it is not known.
func (c *Cloud) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	missing := fmt.Errorf("find volume %q: %w", name, fault.NotFound)
	if name == "" {
		return cloud.Volume{}, missing
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	same, err := c.named(budget.WithPriority(ctx, budget.Read), c.cloudName(name))
	if err != nil {
		return cloud.Volume{}, err
	}
	same = slices.DeleteFunc(same, func(d *compute.Disk) bool { return d.GetStatus() == compute.Disk_DELETING })
	ours := slices.DeleteFunc(slices.Clone(same), func(d *compute.Disk) bool { return !c.madeFor(name, d.GetLabels()) })
	switch {
	case len(ours) > 1:
		return cloud.Volume{}, fmt.Errorf("find volume %q: %w", name, errTwins(ours))
	case len(ours) == 1:
		return c.whenReady(ctx, ours[0])
	case len(same) > 0:
		return cloud.Volume{}, fmt.Errorf("find volume %q: disk %s has its name %s and was made for something else (see its labels): %w",
			name, same[0].GetId(), same[0].GetName(), fault.Conflict)
	default:
		return cloud.Volume{}, missing
	}
}

// whenReady returns a disk that was found when it can be attached.
func (c *Cloud) whenReady(ctx context.Context, d *compute.Disk) (cloud.Volume, error) {
	if d.GetStatus() != compute.Disk_CREATING && d.GetStatus() != compute.Disk_READY {
		return cloud.Volume{}, inError(d)
	}
	if d.GetStatus() == compute.Disk_CREATING {
		var now *compute.Disk
		ch := change{watch: watch{disk: idOf(d), kind: kindOther}}
		_, err := c.await(ctx, ch, func(s sight) bool {
			now = s.disk
			return s.gone || s.disk.GetStatus() != compute.Disk_CREATING
		})
		switch {
		case err != nil:
			return cloud.Volume{}, fmt.Errorf("disk %s is being made: %w: %w", d.GetId(), fault.Unavailable, err)
		case now == nil:
			return cloud.Volume{}, fmt.Errorf("disk %s was being made and is gone: %w", d.GetId(), fault.Unavailable)
		case now.GetStatus() != compute.Disk_READY:
			return cloud.Volume{}, inError(now)
		}
		d = now
	}
	return c.volumeOf(d), nil
}

func inError(d *compute.Disk) error {
	return fmt.Errorf("disk %s (%s) is in the state %s; look at it in the console, and delete it there if it holds nothing that is needed: %w",
		d.GetId(), d.GetName(), d.GetStatus(), fault.Unavailable)
}

// GetVolume returns the present state of a disk.
func (c *Cloud) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	if !objectID(id) {
		return cloud.Volume{}, fmt.Errorf("volume %.80q: %w: no disk has such an id", id, fault.NotFound)
	}
	d, err := c.states.Get(ctx, id)
	if err != nil {
		return cloud.Volume{}, err
	}
	return c.volumeOf(d), nil
}

// DeleteVolume removes a disk.
func (c *Cloud) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	if !objectID(id) {
		return nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	t := &turn{c: c, doing: "delete disk " + string(id), shows: func(s sight) bool { return s.gone }}
	t.send = func(ctx context.Context) (*change, error) {
		asked := time.Now()
		op, err := c.begin(ctx, diskKey(id), t.doing, func(ctx context.Context) (*operation.Operation, error) {
			return c.disks.Delete(ctx, &compute.DeleteDiskRequest{DiskId: string(id)})
		})
		if err == nil { // so the disk was still there
			c.known.deletes(id, asked)
		}
		return changeOf(op, id, kindDelete), err
	}
	t.decide = func(ctx context.Context, refusal error) error {
		if fault.Of(refusal) == fault.NotFound {
			return nil
		}
		joined, d, err := c.after(ctx, id, "")
		switch {
		case err != nil:
			return err
		case d == nil:
			return nil
		case len(d.GetInstanceIds()) > 0:
			return fmt.Errorf("it is attached to the machine %s; it can be deleted when it is detached: %w: %w", d.GetInstanceIds()[0], fault.Precondition, refusal)
		}
		return t.again(joined, refusal)
	}
	if _, err := t.do(ctx); err != nil {
		return err
	}
	c.known.forget(id)
	return nil
}

// changeOf is the change of a disk that an operation makes; nil where there is no operation.
func changeOf(op *operation.Operation, id cloud.VolumeID, kind poll.Kind) *change {
	if op == nil {
		return nil
	}
	return &change{watch: watch{operation: op.GetId(), disk: id, kind: kind}, began: time.Now()}
}

// on names the machine of a change, if there is one, and since when the state before it is known.
func (ch *change) on(machine string, since time.Time) *change {
	if ch != nil {
		ch.machine, ch.since, ch.taken = machine, since, ch.began
	}
	return ch
}

// after returns the state of a disk, nil if there is none, when everything has ended that is under way with
// it or the machine, and whether there was anything. Without a machine it is one of which this process knows that
// something of the disk may be under way there: the records of the disk itself may not tell of that.
func (c *Cloud) after(ctx context.Context, id cloud.VolumeID, machine string) (joined bool, d *compute.Disk, err error) {
	if joined, err = c.join(ctx, id, cmp.Or(machine, c.known.openOn(id))); err != nil {
		return joined, nil, err
	}
	c.known.joined(id)
	d, err = c.look(ctx, id)
	return joined, d, err
}

// again answers a refusal that the state does not explain: the same is sent again after a pause. If something
// was under way that was waited for, that was it; else there may be something that the API does not tell, and
// the patience for that ends.
func (t *turn) again(explained bool, refusal error) error {
	err := fmt.Errorf("%w: %w", fault.Busy, refusal)
	if explained {
		return err
	}
	return t.puzzles.Count(err)
}

// disk reads one disk, fresh.
func (c *Cloud) disk(ctx context.Context, id cloud.VolumeID) (*compute.Disk, error) {
	d, err := c.disks.Get(ctx, &compute.GetDiskRequest{DiskId: string(id)})
	switch {
	case err != nil:
		return nil, readError("look at disk "+string(id), err)
	case d.GetId() != string(id):
		return nil, fmt.Errorf("look at disk %s: %w: the answer is about something else", id, fault.Unavailable)
	}
	c.known.saw(d, true)
	return d, nil
}

// look is disk with a nil for one that does not exist.
func (c *Cloud) look(ctx context.Context, id cloud.VolumeID) (*compute.Disk, error) {
	d, err := c.disk(ctx, id)
	if fault.Of(err) == fault.NotFound {
		c.known.forget(id)
		return nil, nil //nolint:nilnil // "there is none" is an answer here, and every caller asks for it
	}
	return d, err
}

// named returns the disks with exactly this name, oldest first.
func (c *Cloud) named(ctx context.Context, name string) (same []*compute.Disk, err error) {
	for token := ""; ; {
		list, err := c.disks.List(ctx, &compute.ListDisksRequest{
			FolderId: c.folder, PageSize: perPage, PageToken: token, Filter: fmt.Sprintf("name=%q", name),
		})
		if err != nil {
			return nil, readError("look for disks named "+name, err)
		}
		same = append(same, list.GetDisks()...)
		if token = list.GetNextPageToken(); token == "" {
			break
		}
	}
	same = slices.DeleteFunc(same, func(d *compute.Disk) bool { return d.GetName() != name })
	slices.SortFunc(same, oldestFirst)
	for _, d := range same {
		c.known.saw(d, false)
	}
	return same, nil
}

func diskKey(id cloud.VolumeID) string { return "disk " + string(id) }
