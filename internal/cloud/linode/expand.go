package linode

import (
	"context"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ExpandVolume makes a volume larger, also while it is attached. The Linode that has it sees the new size
// only when it is attached the next time, which the node has to confirm.
func (c *Cloud) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	n, ok := volumeNumber(id)
	want := gib(size)
	switch {
	case !ok:
		return cloud.Expansion{}, fmt.Errorf("expand volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	case want > mostSize:
		return cloud.Expansion{}, fmt.Errorf("expand volume %d: %s is more than %d GiB, the largest volume: %w", n, size, mostSize, fault.OutOfRange)
	}
	ctx, cancel := c.bounded(budget.WithPriority(ctx, budget.Write))
	defer cancel()
	v, err := c.grow(ctx, n, want)
	if err != nil {
		return cloud.Expansion{}, fmt.Errorf("expand volume %d to %d GiB: %w", n, want, err)
	}
	return cloud.Expansion{Size: cloud.Bytes(v.gib) * cloud.GiB, NodeMustConfirm: v.linode != 0}, nil
}

// grow returns the volume when it has the size and no growth of it is under way.
func (c *Cloud) grow(ctx context.Context, id int, want int64) (*volume, error) {
	known, err := c.know(ctx, id)
	if err != nil {
		return nil, err
	}
	if want <= known.gib {
		v, err := c.settled(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case gone(v):
			return nil, fmt.Errorf("%w: there is no such volume", fault.NotFound)
		case v.gib >= want: // a growth that had been under way may have failed
			return v, nil
		}
	}
	var unexplained remote.Puzzles
	var began time.Time
	var large *volume
	err = c.machines.Do(ctx, queue.Change{Send: func(ctx context.Context) error {
		err := apiErrors.Write("send it", c.work.Write(ctx, objectOf(id), func(ctx context.Context) error { return c.sendResize(ctx, id, want) }))
		switch {
		case err == nil:
			began = time.Now()
			c.known.change(id, func(v *volume) { v.status, v.gib = statusResizing, want })
			return nil
		case !apiErrors.Refused(err) || fault.Of(err) == fault.Busy:
			return err
		}
		large, err = c.decideGrowth(ctx, id, want, err)
		return unexplained.Count(err)
	}})
	if err != nil || large != nil {
		return large, err
	}
	v, err := c.await(ctx, id, kindResize, began, func(v *volume) (bool, error) {
		switch {
		case gone(v):
			return false, fmt.Errorf("%w: it was deleted meanwhile", fault.NotFound)
		case v.status == statusBroken:
			return false, errBroken(v)
		case v.status != statusActive:
			return false, nil
		case v.gib < want:
			return false, failed(v)
		}
		return true, nil
	})
	if err != nil {
		return nil, unseen(err)
	}
	return v, nil
}

// decideGrowth says what a refused growth means, or returns the volume if it is large enough.
func (c *Cloud) decideGrowth(ctx context.Context, id int, want int64, refusal error) (*volume, error) {
	v, err := c.look(ctx, id)
	if err != nil {
		return nil, err
	}
	inTheWay := !gone(v) && v.status != statusActive && v.status != statusBroken
	if inTheWay {
		if v, err = c.settled(ctx, id); err != nil {
			return nil, err
		}
	}
	switch {
	case gone(v):
		return nil, fmt.Errorf("%w: there is no such volume: %w", fault.NotFound, refusal)
	case v.gib >= want && v.status == statusActive:
		return v, nil
	case v.status == statusBroken:
		return nil, errBroken(v)
	case inTheWay:
		return nil, fmt.Errorf("%w: %w", fault.Busy, refusal) // it has ended
	case fault.Of(refusal) == fault.OutOfRange, fault.Of(refusal) == fault.Exhausted:
		return nil, refusal
	}
	// What was in the way has ended before the look, or the API does not tell what it was.
	return nil, fmt.Errorf("%w: %w", fault.Busy, refusal)
}
