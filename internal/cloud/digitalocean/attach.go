package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A move is one attach or detach in a droplet's queue. Its action may be read by the queue's watcher
// after the call has gone, so it stands behind a lock.
type move struct {
	c       *Cloud
	id      cloud.VolumeID
	droplet int
	kind    poll.Kind
	// decide says what a refusal means, from the state of the volume (nil: there is none). It answers
	// nil where the wanted state is there already.
	decide func(ctx context.Context, vol *godo.Volume, refusal error) error

	puzzles remote.Puzzles

	mu  sync.Mutex
	act *action // nil: nothing has to be waited for
}

// do lets the move happen in its turn and returns when the cloud says that it has.
func (m *move) do(ctx context.Context) error {
	err := m.c.machines.Do(ctx, queue.Change{Key: string(nodeID(m.droplet)), Send: m.send, Wait: m.wait})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s volume %s, droplet %d: %w", m.kind, m.id, m.droplet, err)
	if m.sent() {
		return unseen(err)
	}
	return err
}

// send sends the write. What a refusal means is decided from the state: after everything that is under
// way with the volume has ended, because an attachment that is being undone is none (failure A1 of the
// catalogue), and read then, because a list may be old (A9).
func (m *move) send(ctx context.Context) error {
	act, err := m.c.postAction(ctx, m.id, m.kind, map[string]any{"droplet_id": m.droplet})
	if err == nil {
		m.mu.Lock()
		m.act = &act
		m.mu.Unlock()
		return nil
	}
	if !refused(err) || fault.Of(err) == fault.Busy {
		return err
	}
	if _, joinErr := m.c.join(ctx, m.id); joinErr != nil {
		return joinErr
	}
	vol, lookErr := m.c.look(ctx, m.id)
	if lookErr != nil {
		return lookErr
	}
	return m.puzzles.Count(m.decide(ctx, vol, err))
}

func (m *move) wait(ctx context.Context) error {
	m.mu.Lock()
	act := m.act
	m.mu.Unlock()
	if act == nil {
		return nil
	}
	return m.c.await(ctx, *act)
}

func (m *move) sent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.act != nil
}

// Attach makes the volume a disk of the droplet.
func (c *Cloud) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	droplet, ok := dropletID(node)
	switch {
	case !objectID(id):
		return cloud.Device{}, fmt.Errorf("attach volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	case !ok:
		return cloud.Device{}, fmt.Errorf("attach volume %s to %.80q: %w: no droplet has such an id", id, node, fault.NotFound)
	}
	ctx, cancel := c.bounded(budget.WithPriority(ctx, budget.Attach))
	defer cancel()
	f, err := c.know(ctx, id)
	if err != nil {
		return cloud.Device{}, fmt.Errorf("attach volume %s to droplet %d: %w", id, droplet, err)
	}
	c.growing.Before(ctx, id, f.wish)
	m := &move{c: c, id: id, droplet: droplet, kind: kindAttach}
	m.decide = func(ctx context.Context, vol *godo.Volume, refusal error) error {
		return c.decideAttach(ctx, vol, droplet, refusal)
	}
	if err := m.do(ctx); err != nil {
		return cloud.Device{}, err
	}
	c.known.change(id, func(f *fact) { f.droplet = droplet })
	return deviceOf(f.name), nil
}

// decideAttach says what a refused attach means.
func (c *Cloud) decideAttach(ctx context.Context, vol *godo.Volume, droplet int, refusal error) error {
	switch {
	case vol == nil:
		return fmt.Errorf("%w: there is no such volume: %w", fault.NotFound, refusal)
	case attachedTo(vol, droplet):
		return nil
	case len(vol.DropletIDs) > 0:
		return fmt.Errorf("it is attached to droplet %d; it can be attached here when it is detached there: %w: %w",
			vol.DropletIDs[0], fault.Precondition, refusal)
	}
	there, err := c.droplet(ctx, droplet)
	switch {
	case err != nil:
		return err
	case there == nil:
		return fmt.Errorf("%w: there is no such droplet: %w", fault.NotFound, refusal)
	case len(there.VolumeIDs) >= slots || fault.Of(refusal) == fault.Exhausted:
		return fmt.Errorf("the droplet has no free slot, %d volumes are attached to it: %w: %w", len(there.VolumeIDs), fault.Exhausted, refusal)
	case there.Region != nil && there.Region.Slug != regionOf(vol):
		return fmt.Errorf("the volume is in %s and the droplet in %s: %w: %w", regionOf(vol), there.Region.Slug, fault.Precondition, refusal)
	}
	// The refusal was about a state that has changed since, or about something that the API does not tell.
	return fmt.Errorf("the volume is free and the droplet has room now: %w: %w", fault.Busy, refusal)
}

// droplet reads a machine; nil if there is none.
func (c *Cloud) droplet(ctx context.Context, id int) (*godo.Droplet, error) {
	there, _, err := c.api.Droplets.Get(budget.WithPriority(ctx, budget.Read), id)
	if a := answerOf(err); a != nil && a.Status == http.StatusNotFound {
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	}
	if err == nil && (there == nil || there.ID != id) {
		return nil, fmt.Errorf("look at droplet %d: %w: the answer is not about it", id, fault.Unavailable)
	}
	return there, readError(fmt.Sprintf("look at droplet %d", id), err)
}

// Detach takes the volume off the droplet, or off whatever droplet.
func (c *Cloud) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	if !objectID(id) {
		return nil // no volume, so it is free
	}
	ctx, cancel := c.bounded(budget.WithPriority(ctx, budget.Detach))
	defer cancel()
	if node == "" {
		return c.detachAll(ctx, id)
	}
	droplet, ok := dropletID(node)
	if !ok {
		return nil // a volume is never a disk of what is no droplet
	}
	_, err := c.know(ctx, id)
	if fault.Of(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("detach volume %s from droplet %d: %w", id, droplet, err)
	}
	if err := c.detach(ctx, id, droplet); err != nil {
		return err
	}
	c.growing.Soon(id)
	return nil
}

// detachAll takes the volume off whatever it is attached to, or is about to be.
func (c *Cloud) detachAll(ctx context.Context, id cloud.VolumeID) error {
	for {
		if _, err := c.join(ctx, id); err != nil {
			return err
		}
		vol, err := c.look(ctx, id)
		switch {
		case err != nil:
			return err
		case vol == nil:
			return nil
		case len(vol.DropletIDs) == 0:
			c.growing.Soon(id)
			return nil
		}
		if err := c.detach(ctx, id, vol.DropletIDs[0]); err != nil {
			return err
		}
	}
}

func (c *Cloud) detach(ctx context.Context, id cloud.VolumeID, droplet int) error {
	m := &move{c: c, id: id, droplet: droplet, kind: kindDetach}
	m.decide = func(_ context.Context, vol *godo.Volume, refusal error) error {
		if vol == nil || !attachedTo(vol, droplet) {
			return nil // read after everything under way had ended: it is free of this droplet
		}
		if fault.Of(refusal) == fault.NotFound {
			// The droplet has gone and the volume's record lags behind it (failure A11).
			return fmt.Errorf("the volume still shows as attached to it; this ends by itself when the droplet is gone: %w: %w",
				fault.Unavailable, refusal)
		}
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	}
	if err := m.do(ctx); err != nil {
		return err
	}
	c.known.change(id, func(f *fact) {
		if f.droplet == droplet {
			f.droplet = 0
		}
	})
	return nil
}

// bounded gives a call that has no deadline the operation's.
func (c *Cloud) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.patient)
}
