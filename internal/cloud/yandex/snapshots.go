package yandex

import (
	"context"
	"fmt"
	"slices"
	"time"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateSnapshot makes a snapshot of a disk and returns while the cloud is still copying: the instant is
// that of the call, and writing may go on. What was answered once is the answer for ever, or
// an error is: see told.
func (c *Cloud) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	doing := fmt.Sprintf("create snapshot %q", req.Name)
	if err := checkSnapshot(req); err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	labels, err := c.labels(req.Name, req.Tags, cloud.Source{})
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if told, err := c.told(ctx, req); err != nil {
		return cloud.Snapshot{}, err
	} else if told != nil {
		return snapshotOf(told), nil
	}
	snap, err := c.takeSnapshot(ctx, taking{
		doing: fmt.Sprintf("%s of disk %s", doing, req.Volume), what: keySnapshot, request: req.Name,
		body: &compute.CreateSnapshotRequest{
			FolderId: c.folder, DiskId: string(req.Volume), Name: c.cloudName(req.Name),
			Description: "Created by cloudblock-csi", Labels: labels,
		},
	})
	if err != nil {
		return cloud.Snapshot{}, err
	}
	c.chains.making(req.Name, snap.GetId())
	return snapshotOf(snap), nil
}

func checkSnapshot(req cloud.CreateSnapshotRequest) error {
	switch {
	case req.Name == "":
		return fmt.Errorf("it has no name: %w", fault.InvalidArgument)
	case !objectID(req.Volume):
		return fmt.Errorf("volume %.80q: %w: no disk has such an id", req.Volume, fault.NotFound)
	default:
		return nil
	}
}

// A taking is a snapshot that is to be made.
type taking struct {
	doing, what, request string
	body                 *compute.CreateSnapshotRequest
	// whole: it is waited for until it can be restored.
	whole bool
}

// takeSnapshot sends the write and returns the snapshot as soon as it shows. Until the operation has ended it
// counts among those that the folder can have, so its place in the queue is kept without the caller.
func (c *Cloud) takeSnapshot(ctx context.Context, t taking) (*compute.Snapshot, error) {
	slot, err := c.changes.Acquire(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.doing, err)
	}
	defer slot.Release()
	m := &making{c: c, doing: t.doing, what: t.what, request: t.request, send: func(ctx context.Context) (*operation.Operation, error) {
		return c.snapshots.Create(ctx, t.body)
	}}
	var id, op string
	err = slot.Send(ctx, func(ctx context.Context) (err error) {
		id, op, err = m.begin(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	began := change{watch: watch{operation: op, kind: kindSnapshot}, began: time.Now()}
	end := func(ctx context.Context) error {
		if op == "" {
			return nil // it had ended before it was asked for
		}
		_, err := c.await(ctx, began, nil)
		return err
	}
	if t.whole {
		err = end(ctx)
	}
	if !t.whole || err != nil && ctx.Err() != nil {
		slot.ReleaseAfter(ctx, end)
	}
	if err != nil {
		return c.givenUp(ctx, cloud.SnapshotID(id), t, err)
	}
	return c.snapshotSoon(ctx, cloud.SnapshotID(id), t, end)
}

// snapshotSoon looks at a snapshot that is being made. A copy of the cloud's records may not know it yet; at
// the end of the operation it does.
func (c *Cloud) snapshotSoon(ctx context.Context, id cloud.SnapshotID, t taking, end func(context.Context) error) (*compute.Snapshot, error) {
	snap, err := c.snapshot(ctx, id)
	if fault.Of(err) == fault.NotFound {
		if err := end(ctx); err != nil {
			return c.givenUp(ctx, id, t, err)
		}
		snap, err = c.snapshot(ctx, id)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", t.doing, fault.Uncertain, err)
	case snap.GetSourceDiskId() != t.body.GetDiskId(): // an earlier call with another wish is still making it
		return nil, fmt.Errorf("%s: snapshot %s has its name and is of disk %s: %w", t.doing, id, snap.GetSourceDiskId(), fault.Conflict)
	case snap.GetStatus() == compute.Snapshot_ERROR && t.what == keyTemporary:
		return nil, c.discardSnapshot(ctx, id, fmt.Errorf("%s: the cloud gave it up: %w", t.doing, fault.Unavailable))
	}
	return snap, nil
}

// givenUp says what a failed wait for the end of a snapshot's operation means. What is left of it stays if somebody
// may have been told of it, and is answered as it is, so that whoever asks knows what to delete.
func (c *Cloud) givenUp(ctx context.Context, id cloud.SnapshotID, t taking, why error) (*compute.Snapshot, error) {
	why = fmt.Errorf("%s: %w", t.doing, unseen(why))
	if t.what == keyTemporary || fault.Of(why) == fault.Uncertain {
		return nil, c.discardSnapshot(ctx, id, why)
	}
	snap, err := c.snapshot(ctx, id)
	switch {
	case fault.Of(err) == fault.NotFound:
		c.chains.making(t.request, string(id))
		return nil, errLost(t.request, string(id), why)
	case err != nil:
		return nil, fmt.Errorf("%w: %w: %w", fault.Uncertain, err, why)
	}
	return snap, nil
}

// discardSnapshot deletes what a snapshot that the cloud gave up has left, if anything, and returns why. One
// whose operation was not seen to fail stays.
func (c *Cloud) discardSnapshot(ctx context.Context, id cloud.SnapshotID, why error) error {
	if fault.Of(why) == fault.Uncertain {
		return why
	}
	if _, err := c.snapshotThere(ctx, id, why); err != nil {
		return fmt.Errorf("%w: snapshot %s is left: %w: %w", fault.Uncertain, id, err, why)
	}
	return why
}

// snapshotThere reports whether there is what an operation has made. What a failed one has left goes: it was
// never whole.
func (c *Cloud) snapshotThere(ctx context.Context, id cloud.SnapshotID, failure error) (bool, error) {
	snap, err := c.snapshot(ctx, id)
	switch {
	case fault.Of(err) == fault.NotFound:
		return false, nil
	case err != nil:
		return false, err
	case failure != nil && snap.GetStatus() != compute.Snapshot_READY:
		return false, c.deleteSnapshot(ctx, id, false)
	}
	return snap.GetStatus() != compute.Snapshot_DELETING, nil
}

// FindSnapshot returns the snapshot made under this request name. One that the cloud has given up is none, and holds
// the name; several are left to a person, as FindVolume does it.
func (c *Cloud) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	missing := fmt.Errorf("find snapshot %q: %w", name, fault.NotFound)
	if name == "" {
		return cloud.Snapshot{}, missing
	}
	same, err := c.snapshotsNamed(ctx, c.cloudName(name))
	if err != nil {
		return cloud.Snapshot{}, err
	}
	ours := c.ours(name, same)
	switch {
	case len(ours) > 1:
		return cloud.Snapshot{}, errTwinSnapshots(name, ours)
	case len(ours) == 1 && ours[0].GetStatus() == compute.Snapshot_ERROR:
		return cloud.Snapshot{}, fmt.Errorf("find snapshot %q: %w: %w", name, fault.Conflict, errLost(name, ours[0].GetId(), nil))
	case len(ours) == 1:
		return snapshotOf(ours[0]), nil
	case len(same) > 0:
		return cloud.Snapshot{}, fmt.Errorf("find snapshot %q: %s has its name %s and was made for something else (see its labels): %w",
			name, same[0].GetId(), same[0].GetName(), fault.Conflict)
	default:
		return cloud.Snapshot{}, missing
	}
}

// snapshotsNamed returns the snapshots with exactly this name, oldest first, without those that go.
func (c *Cloud) snapshotsNamed(ctx context.Context, name string) ([]*compute.Snapshot, error) {
	same, err := c.allSnapshots(ctx, budget.Read, name)
	if err != nil {
		return nil, err
	}
	same = slices.DeleteFunc(same, func(s *compute.Snapshot) bool { return s.GetStatus() == compute.Snapshot_DELETING })
	slices.SortFunc(same, func(a, b *compute.Snapshot) int { return a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime()) })
	return same, nil
}

// GetSnapshot returns the present state of a snapshot.
func (c *Cloud) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	if !objectID(id) {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %.80q: %w: no snapshot has such an id", id, fault.NotFound)
	}
	snap, err := c.snapshot(ctx, id)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	return snapshotOf(snap), nil
}

func (c *Cloud) snapshot(ctx context.Context, id cloud.SnapshotID) (*compute.Snapshot, error) {
	snap, err := c.snapshots.Get(budget.WithPriority(ctx, budget.Read), &compute.GetSnapshotRequest{SnapshotId: string(id)})
	switch {
	case err != nil:
		return nil, readError("look at snapshot "+string(id), err)
	case snap.GetId() != string(id):
		return nil, fmt.Errorf("look at snapshot %s: %w: the answer is about something else", id, fault.Unavailable)
	}
	return snap, nil
}

// DeleteSnapshot removes a snapshot.
func (c *Cloud) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	if !objectID(id) {
		return nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if err := c.deleteSnapshot(ctx, id, true); err != nil {
		return err
	}
	c.chains.delete(string(id))
	return nil
}

// deleteSnapshot removes a snapshot, in its turn unless the caller has one.
func (c *Cloud) deleteSnapshot(ctx context.Context, id cloud.SnapshotID, queued bool) error {
	t := &turn{c: c, doing: "delete snapshot " + string(id)}
	t.send = func(ctx context.Context) (*change, error) {
		op, err := c.begin(ctx, "snapshot "+string(id), t.doing, func(ctx context.Context) (*operation.Operation, error) {
			return c.snapshots.Delete(ctx, &compute.DeleteSnapshotRequest{SnapshotId: string(id)})
		})
		if op == nil {
			return nil, err
		}
		return &change{watch: watch{operation: op.GetId(), kind: kindDelete}, began: time.Now()}, err
	}
	t.decide = func(ctx context.Context, refusal error) error {
		_, err := c.snapshot(ctx, id)
		switch kind := fault.Of(err); {
		case kind == fault.NotFound:
			return nil
		case kind != fault.None:
			return err
		}
		return t.again(false, refusal) // it is being made, or a disk is being made from it
	}
	if !queued {
		if err := t.try(ctx); err != nil {
			return err
		}
		return t.wait(ctx)
	}
	_, err := t.do(ctx)
	return err
}
