package linode

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The kinds of changes that are waited for.
const (
	kindCreate poll.Kind = "create"
	kindClone  poll.Kind = "clone"
	kindAttach poll.Kind = "attach"
	kindDetach poll.Kind = "detach"
	kindResize poll.Kind = "resize"
	kindDelete poll.Kind = "delete"
	// kindOther is what somebody else has begun.
	kindOther poll.Kind = "other"
)

// What the cloud calls the states of a volume.
const (
	statusCreating = "creating"
	statusActive   = "active"
	statusResizing = "resizing"
	statusDeleting = "deleting"
	statusDeleted  = "deleted"
	statusBroken   = "contact_support"
)

// usualDurations are for the first changes of a process; then they are learnt. A delete is over with its answer.
func usualDurations() map[poll.Kind]time.Duration {
	const short = 300 * time.Millisecond
	return map[poll.Kind]time.Duration{
		kindCreate: short, kindClone: short, kindAttach: short, kindDetach: short, kindResize: short, kindDelete: time.Millisecond,
	}
}

// gone reports whether there is nothing of a volume any more; nil is one that does not exist.
func gone(v *volume) bool { return v == nil || v.status == statusDeleted }

// underWay reports whether a change of a volume shows that has not ended, so that no wait ends by this state.
func (v *volume) underWay() bool {
	return v.linode != 0 && v.told && !v.ready || v.status == statusCreating || v.status == statusResizing || v.status == statusDeleting
}

// errGivenUp is a change that the cloud took on and that is over without having happened. It never says why.
const errGivenUp = givenUp("the cloud took it on and has not done it; it is sent again with the next attempt, and if that goes on, " +
	"look at the Linode's and the volume's events in the Cloud Manager")

type givenUp string

// Error returns the words.
func (e givenUp) Error() string { return string(e) }

func failed(v *volume) error {
	return fmt.Errorf("volume %d: %w: %w", v.id, fault.Unavailable, errGivenUp)
}

// errBroken is a volume that the cloud cannot use any more.
func errBroken(v *volume) error {
	return fmt.Errorf("volume %d (%s) is in the state %q, which only the cloud's support can change: open a ticket; where no PersistentVolume names it nothing has ever used it, "+
		"and the claim goes on when it is deleted: %w",
		v.id, v.label, v.status, fault.Unavailable)
}

// await returns the first state of a volume for which done says so, or its error. began is zero for a change
// that was found running. A state of nil means that the volume is gone.
func (c *Cloud) await(ctx context.Context, id int, kind poll.Kind, began time.Time, done func(v *volume) (bool, error)) (*volume, error) {
	v, err := c.changes.Wait(ctx, poll.Operation[int]{Key: id, Kind: kind, Began: began}, func(v *volume) (bool, error) {
		if v != nil && v.doubtful {
			return false, nil
		}
		return done(v)
	})
	if err != nil {
		return nil, fmt.Errorf("%s of volume %d: %w", kind, id, err)
	}
	return v, nil
}

// lookPriority is that of looks at changes. Until a change is seen to have ended its machine is held,
// also for a detach that waits for its turn; and one look answers everybody.
const lookPriority = budget.Detach

// lookAt is a look of the poller.
func (c *Cloud) lookAt(ctx context.Context, id int) (*volume, error) {
	return c.look(budget.WithPriority(ctx, lookPriority), id)
}

// lookAtSeveral is a look of the poller for many. Of a volume with a change under way it does not matter whether
// that is the present one: whoever waits for it goes on waiting.
func (c *Cloud) lookAtSeveral(ctx context.Context, ids []int) (map[int]*volume, error) {
	return c.page(budget.WithPriority(ctx, lookPriority), ids, (*volume).underWay)
}

// edgesOf is a look for many right before or after a change.
func (c *Cloud) edgesOf(ctx context.Context, ids []int) (map[int]*volume, error) {
	return c.several(budget.WithPriority(ctx, lookPriority), ids)
}

// read reads one volume, fresh.
func (c *Cloud) read(ctx context.Context, id int) (*volume, error) {
	if budget.PriorityOf(ctx) == budget.Default {
		ctx = budget.WithPriority(ctx, budget.Read)
	}
	asked := time.Now()
	v, err := c.getVolume(ctx, id)
	switch {
	case err != nil:
		if a := apiErrors.Of(err); a != nil && a.Status == http.StatusNotFound {
			c.known.forget(id)
		}
		return nil, apiErrors.Read(fmt.Sprintf("look at volume %d", id), err)
	case v.id != id:
		return nil, fmt.Errorf("look at volume %d: %w: the answer is about something else", id, fault.Unavailable)
	}
	c.known.saw(v, asked)
	return v, nil
}

// look is read with a nil for a volume that does not exist.
func (c *Cloud) look(ctx context.Context, id int) (*volume, error) {
	v, err := c.read(ctx, id)
	if fault.Of(err) == fault.NotFound {
		return nil, nil //nolint:nilnil // "there is none" is an answer here, and every caller asks for it
	}
	return v, err
}

// several answers for several volumes with one page. One that it lacks, or shows as it was before something
// that is known, is read by itself; one that the cloud has been told to delete is gone when it lacks it.
func (c *Cloud) several(ctx context.Context, ids []int) (map[int]*volume, error) {
	return c.page(ctx, ids, func(*volume) bool { return false })
}

// page is several, which takes entries that may be old if they will do.
func (c *Cloud) page(ctx context.Context, ids []int, willDo func(v *volume) bool) (map[int]*volume, error) {
	if c.volumes.Load() > perPage {
		return nil, nil
	}
	asked := time.Now()
	page, last, err := c.volumePage(ctx, listing{number: 1, size: perPage})
	if err != nil {
		return nil, apiErrors.Read("look at several volumes", err)
	}
	found := make(map[int]*volume, len(page))
	for _, v := range page {
		if v.doubtful = !c.known.listed(v, asked); !v.doubtful || willDo(v) {
			found[v.id] = v
		}
	}
	if !last {
		c.volumes.Store(perPage + 1) // at least, until a whole list tells
		return found, nil
	}
	c.volumes.Store(int64(len(page)))
	c.absent(ctx, page, ids, found)
	return found, nil
}

// mostLag is more than a list can lag behind, and the cloud's clock behind this one.
const mostLag = 90 * time.Second

// absent marks as gone what has been told to go and what a complete list lacks, if the list is younger than the
// volume: it shows one that was made after it, or nothing is as old. Of several without that proof one look at
// the events tells which deletes have ended.
func (c *Cloud) absent(ctx context.Context, page []*volume, ids []int, found map[int]*volume) {
	shown := make(map[int]bool, len(page))
	newest := 0
	for _, v := range page {
		shown[v.id] = true
		newest = max(newest, v.id)
	}
	var unproven []int
	for _, id := range ids {
		v, known := c.known.of(id)
		switch {
		case !known || v.status != statusDeleting || shown[id]:
		case id < newest || time.Since(v.created) > mostLag:
			found[id] = nil
		default:
			unproven = append(unproven, id)
		}
	}
	if len(unproven) < 2 {
		return
	}
	ended := c.deleted(ctx)
	for _, id := range unproven {
		if ended[id] {
			found[id] = nil
		}
	}
}

// know returns what there is to know of a volume, with a shared read where this process has never seen
// it. fault.NotFound when there is no such volume.
func (c *Cloud) know(ctx context.Context, id int) (volume, error) {
	if v, known := c.known.of(id); known {
		return v, nil
	}
	v, err := c.present(ctx, id)
	if err != nil {
		return volume{}, err
	}
	return *v, nil
}

// present returns the present state of a volume, by a look that it may share with others. Such a look may say
// that there is none, where one alone is an error.
func (c *Cloud) present(ctx context.Context, id int) (*volume, error) {
	v, err := c.states.Get(ctx, id)
	if err == nil && gone(v) {
		err = fmt.Errorf("volume %d does not exist: %w", id, fault.NotFound)
	}
	return v, err
}

// shown returns the state of a volume by a look that began after the moment; nil when there is none. A look for
// others may have shown it already.
func (c *Cloud) shown(ctx context.Context, id int, after time.Time) (*volume, error) {
	if v, known := c.known.of(id); known && v.asked.After(after) && time.Now().Before(v.until) {
		return &v, nil
	}
	return c.edges.Get(ctx, id)
}

// settled waits until a volume has no change of its status under way, and returns it; nil when it is gone.
func (c *Cloud) settled(ctx context.Context, id int) (*volume, error) {
	return c.await(ctx, id, kindOther, time.Time{}, func(v *volume) (bool, error) {
		return gone(v) || v.status != statusCreating && v.status != statusResizing && v.status != statusDeleting, nil
	})
}
