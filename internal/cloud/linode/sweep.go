package linode

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/linode/linodego"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// A copy that was broken off has its temporary label, so it was never used, and a sweep removes it when no call comes for it
// any more. Another controller may be about to finish that very copy. The API has no conditional requests, and controllers
// know nothing of each other, so these three rules keep a sweep's DELETE off what a call returns:
//
//  1. A sweep removes only what it has seen ready and unchanged for orphanAge, by the monotonic clock of its process, and
//     sends the DELETE within the lease of a read that shows the copy still unchanged.
//  2. A call finishes a copy at once that was begun less than half of orphanAge ago: no sweep has watched it for that long.
//     The clocks of the cloud and of the call's controller may differ by the other half; the sweep's does not matter.
//  3. A call that finds an older copy touches it first, with a tag that is new each time. It waits until a DELETE has landed
//     whose read came before the tag, and goes on if the copy is still there. Every later read shows a sweep that the
//     copy has changed, and it counts again from the start.
//
// So a copy that takes many hours is finished by the next call, and one that is gone is noticed before it is returned.

// lateness is for how long a request may take effect after the read that it was decided by: lease and ops.AnswerTimeout,
// with as much again to spare.
const lateness = 2 * time.Minute

// touched begins the tag of a copy that a call goes on with.
const touched = tags.Own + "copy:"

// keep keeps sweeps off a copy that is old enough for one; v is ready.
func (c *Cloud) keep(ctx context.Context, v *volume, words []string) error {
	if v.Created != nil && c.now().Sub(*v.Created) < c.orphanAge/2 {
		return nil
	}
	at, known := c.kept.Get(v.ID)
	if !known || time.Since(at) >= c.orphanAge/2 {
		_, err := c.withTags(words, func(words []string) (*volume, error) { return c.touch(ctx, v.ID, words) })
		switch {
		case fault.Of(err) == fault.NotFound:
			return errSwept(v.ID)
		case err != nil:
			return fmt.Errorf("%w: %w", fault.Uncertain, err) // the copy is there
		}
		at = time.Now()
		c.kept.Put(v.ID, at)
	}
	if err := wait.Sleep(ctx, time.Until(at.Add(c.lateness))); err != nil {
		return fmt.Errorf("volume %d, the copy, is old, so it takes up to %s to make sure that no sweep removes it, and the next attempt goes on: %w: %w",
			v.ID, c.lateness, fault.Uncertain, err)
	}
	now, err := c.findVolume(ctx, v.ID, budget.Read)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", fault.Uncertain, err)
	case gone(now):
		return errSwept(v.ID)
	}
	return nil
}

// touch puts a new tag on a copy, with those that it gets anyhow: should this request land after the copy was finished,
// they are as they were but for that tag.
func (c *Cloud) touch(ctx context.Context, id int, words []string) (*volume, error) {
	words = append(slices.Clone(words), touched+strconv.FormatInt(time.Now().UnixNano(), 10))
	return ops.Run(ctx, c.ops, ops.Op[*volume]{
		Name: fmt.Sprintf("keep copy %d", id), Kind: "update", Object: c.VolumeKey(volumeID(id)), Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (*volume, string, error) {
			v, err := c.update(ctx, w, id, linodego.VolumeUpdateOptions{Tags: &words})
			return v, "", err
		},
	})
}

// watch remembers how this process has seen copies, and since when.
type watch struct {
	mu sync.Mutex
	of map[int]sighting
}

type sighting struct {
	state string
	since time.Time
}

// see takes in all copies that are there, and returns for how long each has been as it is.
func (w *watch) see(all []volume) map[int]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen, ages := map[int]sighting{}, map[int]time.Duration{}
	for i := range all {
		v, s := &all[i], w.of[all[i].ID]
		if state := versionOf(v); s.state != state {
			s = sighting{state: state, since: time.Now()}
		}
		seen[v.ID], ages[v.ID] = s, time.Since(s.since)
	}
	w.of = seen
	return ages
}

// versionOf is all that a call may change of a copy.
func versionOf(v *volume) string {
	var updated time.Time
	if v.Updated != nil {
		updated = *v.Updated
	}
	return fmt.Sprintf("%s %s %d %q %d %s", v.Label, v.Status, v.Size, v.Tags, linodeOf(v), updated.UTC())
}

// brokenOff reports whether a volume is a copy of this cluster that is ready and was not finished.
func (c *Cloud) brokenOff(v *volume) bool {
	return copyLabel.MatchString(v.Label) && strings.HasPrefix(v.Label, c.copying()) && linodeOf(v) == 0 && (v.Status == statusActive || v.Status == statusBroken)
}

// Sweep removes copies of this cluster that were interrupted and never asked for again.
func (c *Cloud) Sweep(ctx context.Context) error {
	all, err := c.filtered(ctx, map[string]any{"+contains": c.copying()}, budget.List)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(v volume) bool { return !c.brokenOff(&v) })
	ages := c.watched.see(all)
	left := make([]block.Leftover, 0, len(all))
	for i := range all {
		seen := &all[i]
		left = append(left, block.Leftover{
			ID: string(volumeID(seen.ID)), Name: seen.Label, Age: ages[seen.ID],
			Remove: func(ctx context.Context) (bool, error) {
				return c.Remove(ctx, block.Removal{ // the list may lag behind, so the volume is read right before
					ID: volumeID(seen.ID), Name: fmt.Sprintf("remove orphaned copy %d", seen.ID), Priority: budget.List,
					Only: func(v *block.Volume) bool { return v.Version == versionOf(seen) && !c.clones.Has(seen.Label) },
				})
			},
		})
	}
	return c.clones.Sweep(ctx, left)
}
