package linode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// clone makes a volume as a copy of another. The cloud makes a copy as large as its source and without tags, so
// it is made under a label that only this request has, grown, and given its own label and its tags in one
// change, which makes it the request's volume. Broken off anywhere, the repeat finds it by one of the labels.
func (c *Cloud) clone(ctx context.Context, req cloud.CreateVolumeRequest, o order) (*volume, error) {
	if err := c.labelIsFree(ctx, o.label); err != nil {
		return nil, err
	}
	source, err := c.source(ctx, req, o)
	if err != nil {
		return nil, err
	}
	label := c.temporaryLabel(req.Name, source.id)
	defer c.copies.begin(label)()
	v, err := c.copied(ctx, source, label)
	if err != nil {
		return nil, err
	}
	id := v.id
	if v.gib < o.gib {
		if v, err = c.grow(ctx, id, o.gib); err != nil {
			// Another controller may be at it too, so it is not removed; the repeat goes on from here.
			return nil, fmt.Errorf("volume %d is the copy and has not the size yet, the next attempt goes on from there: %w: %w", id, fault.Uncertain, err)
		}
	}
	return c.christen(ctx, v, o)
}

// source returns the volume to copy when it can be copied as the request wants it.
func (c *Cloud) source(ctx context.Context, req cloud.CreateVolumeRequest, o order) (*volume, error) {
	n, _ := volumeNumber(req.Source.Volume) // checked with the order
	v, err := c.look(ctx, n)
	if err == nil && !gone(v) && v.status != statusActive {
		v, err = c.settled(ctx, n)
	}
	switch {
	case err != nil:
		return nil, err
	case gone(v) || v.status == statusDeleting:
		return nil, fmt.Errorf("%w: there is no volume %d to copy", fault.NotFound, n)
	case v.status == statusBroken:
		return nil, fmt.Errorf("%w: %w", fault.Precondition, errBroken(v))
	case len(req.Zones) > 0 && !slices.Contains(req.Zones, v.region):
		return nil, fmt.Errorf("volume %d is in %s and cannot be copied to any of %q: %w", n, v.region, req.Zones, fault.Exhausted)
	case req.Limit > 0 && cloud.Bytes(v.gib)*cloud.GiB > req.Limit:
		return nil, fmt.Errorf("volume %d has %d GiB, so its copy has more than the limit %s: %w", n, v.gib, req.Limit, fault.OutOfRange)
	case (v.encryption == encrypted) != (o.encryption == encrypted):
		return nil, fmt.Errorf("a copy is encrypted if its source is, and volume %d has encryption %q; use a class with %s: \"%t\": %w",
			n, v.encryption, ParamEncrypted, v.encryption == encrypted, fault.InvalidArgument)
	}
	return v, nil
}

// idle reports whether a volume is a copy that nobody has worked on for so long.
func (c *Cloud) idle(v *volume, long time.Duration) bool {
	nobodys := v.linode == 0 && len(v.tags) == 0 && (v.status == statusActive || v.status == statusBroken)
	return nobodys && strings.HasPrefix(v.label, c.copying()) && time.Since(v.created) >= long && time.Since(v.updated) >= long
}

// copied makes the copy under its temporary label, or goes on with the one that an earlier call made. An old one is
// made anew: a sweep may be removing it, and between its look and its delete this call could hand the copy out. A
// sweep takes only what is twice as old, so the two never meet.
func (c *Cloud) copied(ctx context.Context, source *volume, label string) (*volume, error) {
	v, err := c.unfinished(ctx, label)
	if err == nil && v != nil && c.idle(v, c.leftOld/2) {
		_, err = c.remove(ctx, &removal{c: c, id: v.id, only: func(v *volume) bool { return v.label == label && c.idle(v, c.leftOld/2) }})
		v = nil
	}
	if err != nil {
		return nil, err
	}
	if v == nil {
		v, err = c.make(ctx, label, func(ctx context.Context) (*volume, error) { return c.sendClone(ctx, source.id, label) })
		if apiErrors.Refused(err) && fault.Of(err) != fault.Busy {
			v, err = c.refusedCopy(ctx, source, label, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return c.made(ctx, v, true)
}

// unfinished returns the copy with the temporary label, nil if there is none.
func (c *Cloud) unfinished(ctx context.Context, label string) (*volume, error) {
	same, err := c.labelled(ctx, label)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(same, func(v *volume) bool { return v.status != statusDeleting })
	switch {
	case at >= 0:
		return same[at], nil
	case len(same) > 0: // it has the label until it is gone
		return nil, errSwept(same[0].id)
	}
	return nil, nil //nolint:nilnil // "there is none" is an answer here
}

// errSwept is a copy that is being removed while this call would go on with it.
func errSwept(id int) error {
	return fmt.Errorf("volume %d, the copy, is being removed as a left-over of an earlier attempt; the next attempt begins anew: %w", id, fault.Unavailable)
}

// refusedCopy says what a refused copy means, or returns the one that another controller has made meanwhile.
func (c *Cloud) refusedCopy(ctx context.Context, source *volume, label string, refusal error) (*volume, error) {
	switch v, err := c.unfinished(ctx, label); {
	case err != nil:
		return nil, err
	case v != nil && c.idle(v, c.leftOld/2):
		return nil, errSwept(v.id)
	case v != nil:
		return v, nil
	}
	now, err := c.look(ctx, source.id)
	switch {
	case err != nil:
		return nil, err
	case gone(now) || now.status == statusDeleting:
		return nil, fmt.Errorf("%w: there is no volume %d to copy: %w", fault.NotFound, source.id, refusal)
	case now.status != statusActive:
		return nil, fmt.Errorf("volume %d is %s: %w: %w", source.id, now.status, fault.Unavailable, refusal)
	}
	return nil, refusal
}

// christen gives a finished copy the label and the tags of its request.
func (c *Cloud) christen(ctx context.Context, v *volume, o order) (*volume, error) {
	id := v.id
	named := make(chan *volume, 1)
	err := c.work.Write(ctx, objectOf(id), func(ctx context.Context) error {
		asked := time.Now()
		v, err := c.sendUpdate(ctx, id, o.label, o.tags)
		if err == nil {
			c.known.saw(v, asked)
			named <- v
		}
		return err
	})
	if err == nil {
		done := <-named
		if done.status != statusActive {
			return nil, errSwept(id) // a label can be given to what is being deleted
		}
		return done, nil
	}
	err = apiErrors.Write(fmt.Sprintf("label volume %d", id), err)
	if !apiErrors.Refused(err) {
		return nil, fmt.Errorf("%w: %w", fault.Uncertain, err) // the copy is there
	}
	same, findErr := c.labelled(ctx, o.label)
	switch {
	case findErr != nil:
		return nil, fmt.Errorf("%w: %w: %w", fault.Uncertain, findErr, err)
	case len(same) == 0:
		return nil, fmt.Errorf("%w: %w", fault.Uncertain, err)
	case same[0].id == id:
		return nil, fmt.Errorf("%w: %w", fault.Conflict, err) // another controller was quicker
	}
	return nil, c.takeBack(ctx, id, fmt.Errorf("volume %d has the label %s: %w: %w", same[0].id, o.label, fault.Conflict, err))
}

// copies are those that calls of this process are making.
type copies struct {
	mu     sync.Mutex
	labels map[string]int
}

// begin says that a copy is being made under this label, until end is called.
func (k *copies) begin(label string) (end func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.labels == nil {
		k.labels = map[string]int{}
	}
	k.labels[label]++
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.labels[label]--; k.labels[label] == 0 {
			delete(k.labels, label)
		}
	}
}

func (k *copies) underWay(label string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.labels[label] > 0
}

// sweep removes left-over copies.
func (c *Cloud) sweep() {
	if err := c.Sweep(c.work.Life()); err != nil && c.work.Life().Err() == nil {
		c.log.Warn("could not look for left-over copies", zap.Error(err))
	}
}

// mostSwept bounds how many copies are removed in one go.
const mostSwept = 20

// Sweep removes copies of this cluster that were broken off and never asked for again. A copy is handed out only
// after it has got another label, so nobody has ever used one of these.
func (c *Cloud) Sweep(ctx context.Context) error {
	ctx = budget.WithPriority(ctx, budget.List)
	all, err := c.filtered(ctx, map[string]any{"+contains": c.copying()})
	if err != nil {
		return err
	}
	// A list may lag behind, and a copy that is gone on with may be handed out while others are removed. So each
	// is looked at right before.
	leftOver := func(v *volume) bool { return c.idle(v, c.leftOld) && !c.copies.underWay(v.label) }
	swept := 0
	for _, v := range all {
		if !leftOver(v) || swept == mostSwept {
			continue
		}
		swept++
		removed, err := c.remove(ctx, &removal{c: c, id: v.id, only: leftOver})
		if err != nil {
			return err
		}
		if removed {
			c.log.Info("removed a copy that a broken-off clone had left", zap.Int("volume_id", v.id), zap.String("label", v.label))
		}
	}
	return nil
}
