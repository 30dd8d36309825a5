package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/digitalocean/godo"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// longestGrowth bounds how long an attach waits for a wish: a wish never blocks a pod.
const longestGrowth = time.Minute

// growths are those that go on in the background after a detach.
type growths struct {
	mu    sync.Mutex
	ended map[cloud.VolumeID]chan struct{}
}

// keepWish writes on the volume itself that it is to grow, in place of an earlier wish, and returns what
// the operator is told.
func (c *Cloud) keepWish(ctx context.Context, id cloud.VolumeID, want int64, why error) error {
	vol, err := c.volume(ctx, id)
	if err != nil {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	wanted := wish{gib: want}
	if old, has := wishOf(vol.Tags); !has || old.gib != want {
		c.untag(ctx, id, wishWords(vol.Tags))
		if err := c.tag(ctx, id, wanted.word()); err != nil {
			return fmt.Errorf("%w: the wish could not be written on the volume: %w: %w", fault.Unavailable, err, why)
		}
	}
	c.known.change(id, func(f *fact) { f.wish = true })
	return fmt.Errorf("%w; scale the workload to zero, wait until the VolumeAttachment is gone, then scale it up: "+
		"the volume grows in between (it is tagged %s)", why, wanted.word())
}

// growSoon carries out the wish of a volume that is free now, should it have one, in the background: nobody
// has to wait. Another controller may have written it, so it is looked for each time, with one read for all
// whose detach ended at the same look.
func (c *Cloud) growSoon(id cloud.VolumeID) {
	c.growing.mu.Lock()
	defer c.growing.mu.Unlock()
	if c.work.Life().Err() != nil || c.growing.ended[id] != nil {
		return
	}
	if c.growing.ended == nil {
		c.growing.ended = map[cloud.VolumeID]chan struct{}{}
	}
	ended := make(chan struct{})
	c.growing.ended[id] = ended
	c.work.Go(func() {
		defer func() {
			c.growing.mu.Lock()
			delete(c.growing.ended, id)
			c.growing.mu.Unlock()
			close(ended)
		}()
		ctx, cancel := context.WithTimeout(budget.WithPriority(c.work.Life(), budget.Attach), c.patient)
		defer cancel()
		if f, _ := c.known.of(id); !f.wish {
			vol, err := c.wishes.Get(ctx, id)
			if err != nil || vol == nil || len(wishWords(vol.Tags)) == 0 {
				return // the next detach looks again
			}
		}
		c.carryOut(ctx, id)
	})
}

// wishSource reads volumes that are free now. It is as urgent as the attach that may wait for it.
func (c *Cloud) wishSource() poll.Source[cloud.VolumeID, *godo.Volume] {
	return poll.Source[cloud.VolumeID, *godo.Volume]{
		One: func(ctx context.Context, id cloud.VolumeID) (*godo.Volume, error) {
			return c.read(ctx, id, budget.Attach)
		},
		Many: func(ctx context.Context, ids []cloud.VolumeID) (map[cloud.VolumeID]*godo.Volume, error) {
			found, err := c.page(ctx, budget.Attach)
			for _, id := range ids {
				if _, there := found[id]; found != nil && !there {
					found[id] = nil // it has been deleted since, which is no reason to ask for it
				}
			}
			return found, err
		},
	}
}

// growBeforeAttach joins a growth that goes on, or carries out a wish that nobody did. It fails no attach.
func (c *Cloud) growBeforeAttach(ctx context.Context, id cloud.VolumeID, wished bool) {
	ctx, cancel := context.WithTimeout(ctx, longestGrowth)
	defer cancel()
	c.growing.mu.Lock()
	ended := c.growing.ended[id]
	c.growing.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
		}
		return // it was tried once since the detach
	}
	if wished {
		c.carryOut(ctx, id)
	}
}

// carryOut grows a volume that is free to the size on its tag, once, and removes the tag. What fails is
// written into the tag for the operator, and the wish stays.
func (c *Cloud) carryOut(ctx context.Context, id cloud.VolumeID) {
	vol, err := c.look(ctx, id)
	if err != nil || vol == nil || len(vol.DropletIDs) > 0 {
		return // gone, or in use: the next detach comes back to it
	}
	wanted, has := wishOf(vol.Tags)
	if !has {
		return
	}
	if vol.SizeGigaBytes < wanted.gib {
		r := &resize{c: c, id: id, gib: wanted.gib, region: regionOf(vol)}
		if err := r.do(ctx, 0); err != nil {
			c.wishHasFailed(ctx, vol, wanted, err)
			return
		}
		c.known.change(id, func(f *fact) { f.gib = max(f.gib, wanted.gib) })
		c.log.Info("the volume has grown as it was wished", zap.String("volume_id", string(id)), zap.Int64("gib", wanted.gib))
	}
	c.untag(ctx, id, wishWords(vol.Tags))
}

func (c *Cloud) wishHasFailed(ctx context.Context, vol *godo.Volume, wanted wish, err error) {
	if ctx.Err() != nil {
		return // nothing has failed, it only goes on without us
	}
	c.wishFailed()
	c.log.Warn("the volume was to grow while it was detached, and could not; it is attached all the same and tried again after the next detach",
		zap.String("volume_id", vol.ID), zap.Int64("gib", wanted.gib), zap.Error(err))
	reason := string(fault.Of(err))
	if a := answerOf(err); a != nil {
		reason = a.Words
	}
	failed := wish{gib: wanted.gib, failed: tagRule.Safe(reason, longestReason)}
	words := wishWords(vol.Tags)
	if slices.Contains(words, failed.word()) {
		return
	}
	id := cloud.VolumeID(vol.ID)
	if err := c.tag(ctx, id, failed.word()); err != nil {
		c.log.Warn("the reason could not be written on the volume", zap.String("volume_id", vol.ID), zap.Error(err))
		return
	}
	c.untag(ctx, id, words) // after the new one: in between there are two of the same size
	c.known.change(id, func(f *fact) { f.wish = true })
}

// tag puts a word on a volume. The cloud wants it to exist before it is put on anything.
func (c *Cloud) tag(ctx context.Context, id cloud.VolumeID, word string) error {
	put := func() error {
		return c.write(ctx, volumeKey(id), "tag volume "+string(id), func(ctx context.Context) error {
			_, err := c.api.Tags.TagResources(ctx, word, &godo.TagResourcesRequest{Resources: resource(id)})
			return err
		})
	}
	err := put()
	if a := answerOf(err); a == nil || a.Status != http.StatusNotFound {
		return err
	}
	err = c.write(ctx, "tag "+word, "make the tag "+word, func(ctx context.Context) error {
		_, _, err := c.api.Tags.Create(ctx, &godo.TagCreateRequest{Name: word})
		return err
	})
	if err != nil && !refused(err) { // somebody else may have made it in between
		return err
	}
	return put()
}

// untag takes words off a volume. A word that stays is looked at again by whoever reads the volume.
func (c *Cloud) untag(ctx context.Context, id cloud.VolumeID, words []string) {
	done := true
	for _, word := range words {
		err := c.write(ctx, volumeKey(id), "take a tag off volume "+string(id), func(ctx context.Context) error {
			_, err := c.api.Tags.UntagResources(ctx, word, &godo.UntagResourcesRequest{Resources: resource(id)})
			return err
		})
		if a := answerOf(err); err != nil && (a == nil || a.Status != http.StatusNotFound) {
			done = false
			c.log.Debug("a tag stays on the volume", zap.String("volume_id", string(id)), zap.String("tag", word), zap.Error(err))
		}
	}
	if done {
		c.known.change(id, func(f *fact) { f.wish = false })
	}
}

func resource(id cloud.VolumeID) []godo.Resource {
	return []godo.Resource{{ID: string(id), Type: godo.VolumeResourceType}}
}
