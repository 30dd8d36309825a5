package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/digitalocean/godo"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	grow "github.com/cloudblock-csi/cloudblock-csi/internal/cloud/wish"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// wishes is what a growth that waits for a detach needs of the cloud.
type wishes struct{ *Cloud }

var _ grow.Volumes = wishes{}

func (c *Cloud) newKeeper(cfg Config) *grow.Keeper {
	return grow.NewKeeper(grow.Config{
		Volumes: wishes{c}, Work: c.work, Patience: c.patient, Failed: cfg.Metrics.WishFailed, Log: c.log,
	})
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
		err := c.untag(ctx, id, wishWords(vol.Tags))
		if err == nil { // beside an older one it would not count, or not alone
			err = c.tag(ctx, id, wanted.word())
		}
		if err != nil {
			return fmt.Errorf("%w: the wish could not be written on the volume: %w: %w", fault.Unavailable, err, why)
		}
	}
	c.known.change(id, func(f *fact) { f.wish = true })
	return fmt.Errorf("%w; scale the workload to zero, wait until the VolumeAttachment is gone, then scale it up: "+
		"the volume grows in between (it is tagged %s)", why, wanted.word())
}

// Wishes reports whether a volume that was free a moment ago has a wish.
func (c wishes) Wishes(ctx context.Context, id cloud.VolumeID) (bool, error) {
	if f, _ := c.known.of(id); f.wish {
		return true, nil
	}
	vol, err := c.wished.Get(ctx, id)
	return err == nil && vol != nil && len(wishWords(vol.Tags)) > 0, err
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

// Look returns the present state of a volume.
func (c wishes) Look(ctx context.Context, id cloud.VolumeID) (grow.State, error) {
	vol, err := c.look(ctx, id)
	if err != nil || vol == nil {
		return grow.State{}, err
	}
	wanted, _ := wishOf(vol.Tags)
	return grow.State{
		Exists: true, Free: len(vol.DropletIDs) == 0,
		Size: cloud.Bytes(vol.SizeGigaBytes) * cloud.GiB, Wished: cloud.Bytes(wanted.gib) * cloud.GiB,
	}, nil
}

// Grow makes a free volume larger.
func (c wishes) Grow(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) error {
	f, err := c.know(ctx, id)
	if err != nil {
		return err
	}
	r := &resize{c: c.Cloud, id: id, gib: gib(size), region: f.region}
	if err := r.do(ctx, 0); err != nil {
		return err
	}
	c.known.change(id, func(f *fact) { f.gib = max(f.gib, gib(size)) })
	return nil
}

// Fulfil takes the wish off the volume, and not one for more that was written since: that stands until it is
// carried out, too.
func (c wishes) Fulfil(ctx context.Context, id cloud.VolumeID) {
	vol, err := c.look(ctx, id)
	if err != nil || vol == nil {
		return
	}
	newer := wishesAbove(vol.Tags, vol.SizeGigaBytes)
	_ = c.untag(ctx, id, slices.DeleteFunc(wishWords(vol.Tags), func(word string) bool { return slices.Contains(newer, word) }))
	c.known.change(id, func(f *fact) { f.wish = f.wish || len(newer) > 0 })
}

// Note writes on the volume why its wish failed.
func (c wishes) Note(ctx context.Context, id cloud.VolumeID, size cloud.Bytes, why error) error {
	reason := string(fault.Of(why))
	if a := answerOf(why); a != nil {
		reason = a.Words
	}
	failed := wish{gib: gib(size), failed: tagRule.Safe(reason, longestReason)}
	vol, err := c.volume(ctx, id)
	if err != nil {
		return err
	}
	words := slices.DeleteFunc(wishWords(vol.Tags), func(word string) bool {
		w, _ := wishOf([]string{word})
		return w.gib != failed.gib
	})
	if len(words) == 0 || slices.Contains(words, failed.word()) {
		return nil // taken back or replaced since, or said already
	}
	if err := c.tag(ctx, id, failed.word()); err != nil {
		return err
	}
	_ = c.untag(ctx, id, words) // after the new one: in between there are two of the same size
	c.known.change(id, func(f *fact) { f.wish = true })
	return nil
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

// untag takes words off a volume. A word that is not on it is none to take off.
func (c *Cloud) untag(ctx context.Context, id cloud.VolumeID, words []string) error {
	var left []error
	for _, word := range words {
		err := c.write(ctx, volumeKey(id), "take a tag off volume "+string(id), func(ctx context.Context) error {
			_, err := c.api.Tags.UntagResources(ctx, word, &godo.UntagResourcesRequest{Resources: resource(id)})
			return err
		})
		if a := answerOf(err); err != nil && (a == nil || a.Status != http.StatusNotFound) {
			left = append(left, err)
			c.log.Debug("a tag stays on the volume", zap.String("volume_id", string(id)), zap.String("tag", word), zap.Error(err))
		}
	}
	if len(left) == 0 {
		c.known.change(id, func(f *fact) { f.wish = false })
	}
	return errors.Join(left...)
}

func resource(id cloud.VolumeID) []godo.Resource {
	return []godo.Resource{{ID: string(id), Type: godo.VolumeResourceType}}
}
