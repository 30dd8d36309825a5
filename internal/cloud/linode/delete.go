package linode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// DeleteVolume removes a volume and returns when it is gone.
func (c *Cloud) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	n, ok := volumeNumber(id)
	if !ok {
		return nil
	}
	_, err := c.remove(ctx, &removal{c: c, id: n})
	return err
}

// A removal is one delete of a volume.
type removal struct {
	c  *Cloud
	id int
	// only, if there is one, says of the volume as it is right before the delete whether it is still to go.
	only func(v *volume) bool

	unexplained remote.Puzzles
	sent        bool
}

// remove carries a removal out. It reports whether it has removed the volume, or found none.
func (c *Cloud) remove(ctx context.Context, r *removal) (removed bool, err error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	doing := fmt.Sprintf("delete volume %d", r.id)
	if err := c.machines.Do(ctx, queue.Change{Send: r.send}); err != nil {
		return false, fmt.Errorf("%s: %w", doing, err)
	}
	if !r.sent {
		return false, nil
	}
	v, err := c.edges.Get(ctx, r.id)
	if err == nil && !gone(v) {
		_, err = c.await(ctx, r.id, kindDelete, time.Now(), func(v *volume) (bool, error) {
			if !gone(v) && v.status != statusDeleting {
				return false, failed(v)
			}
			return gone(v), nil
		})
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", doing, err)
	}
	c.known.forget(r.id)
	return true, nil
}

// send sends the write if the volume is free. That the API refuses to delete what is attached is likely and
// written nowhere, so it is not relied on: where this process does not know, it looks.
func (r *removal) send(ctx context.Context) error {
	c := r.c
	for {
		if err := c.work.Settled(ctx, objectOf(r.id)); err != nil {
			return err
		}
		seen, until, err := r.free(ctx)
		if err != nil || seen == nil {
			return err
		}
		err = c.work.Write(remote.LeaveBy(ctx, until), objectOf(r.id), func(ctx context.Context) error {
			// This process may have changed it since.
			if now, known := c.known.of(r.id); known && (now.linode != seen.linode || now.label != seen.label) {
				return remote.ErrLate
			}
			return c.sendDelete(ctx, r.id)
		})
		if errors.Is(err, remote.ErrLate) {
			// What was seen grew old in the queue for the budget: look again, and then go first.
			ctx = budget.WithPriority(ctx, budget.Detach)
			continue
		}
		err = apiErrors.Write("send it", err)
		switch r.sent = err == nil; {
		case r.sent:
			c.known.change(r.id, func(v *volume) { v.status = statusDeleting })
			return nil
		case statusNotFound(err):
			return nil
		case !apiErrors.Refused(err) || fault.Of(err) == fault.Busy:
			return err
		}
		return r.unexplained.Count(c.decideDelete(ctx, r.id, err))
	}
}

// sureFor is for how long what this process has seen of a volume alone may say that it is free.
const sureFor = time.Minute

// free returns the volume and until when it may be taken to be as it is, or nil where there is nothing to remove.
func (r *removal) free(ctx context.Context) (v *volume, until time.Time, err error) {
	if k, known := r.c.known.of(r.id); known && r.only == nil && k.linode == 0 && time.Since(k.sure) < sureFor {
		return &k, k.sure.Add(sureFor), nil
	}
	v, err = r.c.look(ctx, r.id)
	switch {
	case err != nil || gone(v) || r.only != nil && !r.only(v):
		return nil, time.Time{}, err
	case v.linode != 0:
		return nil, time.Time{}, errAttached(v)
	}
	return v, v.until, nil
}

// errAttached is a volume that cannot be deleted because of that.
func errAttached(v *volume) error {
	return fmt.Errorf("it is attached to Linode %d; it can be deleted when it is detached: %w", v.linode, fault.Precondition)
}

// decideDelete says what a refused delete means.
func (c *Cloud) decideDelete(ctx context.Context, id int, refusal error) error {
	v, err := c.look(ctx, id)
	switch {
	case err != nil:
		return err
	case gone(v):
		return nil
	case v.linode != 0:
		return fmt.Errorf("%w: %w", errAttached(v), refusal)
	case v.status != statusActive && v.status != statusBroken:
		if v, err = c.settled(ctx, id); err != nil {
			return err
		}
		if gone(v) {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", fault.Busy, refusal) // what was in the way has ended
}
