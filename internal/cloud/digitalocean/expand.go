package digitalocean

import (
	"context"
	"fmt"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ExpandVolume makes a volume larger, also while it is attached. Where its droplet refuses that, the
// wish is written on the volume and carried out when the volume is detached.
func (c *Cloud) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	if !objectID(id) {
		return cloud.Expansion{}, fmt.Errorf("expand volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	}
	if size > mostSize*cloud.GiB {
		return cloud.Expansion{}, fmt.Errorf("expand volume %s: %s is more than %d GiB, the largest volume: %w", id, size, mostSize, fault.OutOfRange)
	}
	ctx, cancel := c.bounded(budget.WithPriority(ctx, budget.Write))
	defer cancel()
	want := gib(size)
	f, err := c.know(ctx, id)
	if err != nil {
		return cloud.Expansion{}, fmt.Errorf("expand volume %s: %w", id, err)
	}
	if want <= f.gib { // volumes never shrink, so what was seen once is still there
		return c.alreadyLarge(ctx, id, want, f.gib)
	}
	r := &resize{c: c, id: id, gib: want, region: f.region}
	err = r.do(ctx, f.droplet)
	if fault.Of(err) == fault.Precondition && r.attachedTo != 0 {
		return cloud.Expansion{}, c.keepWish(ctx, id, want, err)
	}
	if err != nil {
		return cloud.Expansion{}, err
	}
	return c.hasGrown(ctx, id, want)
}

// hasGrown answers with the size that the cloud shows after the last step (C5). An action that has completed
// says nothing of a volume that was deleted meanwhile.
func (c *Cloud) hasGrown(ctx context.Context, id cloud.VolumeID, want int64) (cloud.Expansion, error) {
	vol, err := c.volume(ctx, id)
	if err != nil {
		return cloud.Expansion{}, fmt.Errorf("expand volume %s: its growth to %d GiB has ended; look at it after that: %w", id, want, err)
	}
	got := max(want, vol.SizeGigaBytes) // the completed action is newer than a look that lags behind
	c.known.change(id, func(f *fact) { f.gib = got })
	if err := c.takeBack(ctx, vol, got); err != nil {
		return cloud.Expansion{}, err
	}
	return cloud.Expansion{Size: cloud.Bytes(got) * cloud.GiB}, nil
}

// alreadyLarge answers a size at or below the present one, which takes back a wish for more. The volume is asked for
// alone: on a list that lags behind, the wish may be missing that the next detach would carry out.
func (c *Cloud) alreadyLarge(ctx context.Context, id cloud.VolumeID, want, seen int64) (cloud.Expansion, error) {
	vol, err := c.volume(ctx, id)
	if err != nil {
		return cloud.Expansion{}, fmt.Errorf("expand volume %s: %w", id, err)
	}
	got := max(vol.SizeGigaBytes, seen) // a look may lag behind
	if want > 0 {
		if err := c.takeBack(ctx, vol, got); err != nil {
			return cloud.Expansion{}, err
		}
	}
	return cloud.Expansion{Size: cloud.Bytes(got) * cloud.GiB}, nil
}

// takeBack takes all wishes off a volume. One for more than it has must not be left behind without a word: a detach
// would carry it out.
func (c *Cloud) takeBack(ctx context.Context, vol *godo.Volume, has int64) error {
	err := c.untag(ctx, cloud.VolumeID(vol.ID), wishWords(vol.Tags))
	if err != nil && len(wishesAbove(vol.Tags, has)) > 0 {
		return fmt.Errorf("expand volume %s: it has %d GiB, and its older wish to grow further could not be taken off: %w: %w",
			vol.ID, has, fault.Unavailable, err)
	}
	return nil
}

// A resize is one growth in the queue of the droplet that has the volume. It is used by one call.
type resize struct {
	c      *Cloud
	id     cloud.VolumeID
	gib    int64
	region string

	// attachedTo is the droplet that refused. It is written by send, which ends before the call does.
	attachedTo int
	move       move
}

// do returns when the volume has the size.
func (r *resize) do(ctx context.Context, droplet int) error {
	r.move.c, r.move.kind = r.c, kindResize
	key := ""
	if droplet != 0 {
		key = string(nodeID(droplet))
	}
	err := r.c.machines.Do(ctx, queue.Change{Key: key, Send: r.send, Wait: r.move.wait})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("expand volume %s to %d GiB: %w", r.id, r.gib, err)
	if r.move.sent() {
		return unseen(err)
	}
	return err
}

// send sends the write, or says from the state what its refusal means.
func (r *resize) send(ctx context.Context) error {
	act, err := r.c.postAction(ctx, r.id, kindResize, map[string]any{"size_gigabytes": r.gib, "region": r.region})
	if err == nil {
		r.move.mu.Lock()
		r.move.act = &act
		r.move.mu.Unlock()
		return nil
	}
	if !refused(err) || fault.Of(err) == fault.Busy {
		return err
	}
	joined, joinErr := r.c.join(ctx, r.id)
	if joinErr != nil {
		return joinErr
	}
	vol, lookErr := r.c.look(ctx, r.id)
	if lookErr != nil {
		return lookErr
	}
	return r.decide(vol, joined, err)
}

func (r *resize) decide(vol *godo.Volume, joined bool, refusal error) error {
	switch {
	case vol == nil:
		return fmt.Errorf("%w: there is no such volume: %w", fault.NotFound, refusal)
	case vol.SizeGigaBytes >= r.gib:
		return nil
	case joined:
		return fmt.Errorf("%w: %w", fault.Busy, refusal) // what was in the way has ended
	case len(vol.DropletIDs) > 0:
		r.attachedTo = vol.DropletIDs[0]
		return fmt.Errorf("droplet %d does not let it grow while it is attached: %w: %w", r.attachedTo, fault.Precondition, refusal)
	default:
		return fmt.Errorf("%w: %w", fault.Precondition, refusal)
	}
}
