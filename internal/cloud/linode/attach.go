package linode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A move is one attach or detach in a Linode's queue. Its change may be waited for by the queue's watcher
// after the call has gone, so what it knows stands behind a lock.
type move struct {
	c          *Cloud
	id, linode int
	kind       poll.Kind
	puzzles    remote.Puzzles
	asked      time.Time // a look has to be younger to decide a detach

	mu sync.Mutex
	// waits: a change is under way, which began then; the zero time means that it was found running.
	waits bool
	began time.Time
	// sent: this call began it.
	sent bool
	// last is the newest state of the volume.
	last *volume
}

// do lets the move happen in its turn and returns when the cloud shows that it has.
func (m *move) do(ctx context.Context, send, wait func(ctx context.Context) error) error {
	err := m.c.machines.Do(ctx, queue.Change{Key: string(nodeID(m.linode)), Send: send, Wait: func(ctx context.Context) error {
		m.mu.Lock()
		waits := m.waits
		m.mu.Unlock()
		if !waits {
			return nil
		}
		return wait(ctx)
	}})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s volume %d, Linode %d: %w", m.kind, m.id, m.linode, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sent {
		return unseen(err)
	}
	return err
}

// note writes down how the move stands.
func (m *move) note(waits, sent bool, began time.Time, last *volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits, m.began, m.sent = waits, began, m.sent || sent
	if last != nil {
		m.last = last
	}
}

func (m *move) since() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.began
}

func (m *move) newest() *volume {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// unseen gives the failed wait for a change that was sent its kind. Only a change that is seen not to have
// happened has changed nothing; of one that nobody could see to its end the outcome is open.
func unseen(err error) error {
	if errors.Is(err, errGivenUp) || errors.Is(err, fault.Uncertain) {
		return err
	}
	return fmt.Errorf("%w: the change goes on unseen: %w", fault.Uncertain, err)
}

// Attach makes the volume a disk of the Linode. It is there when the volume names the Linode and says that
// its device is ready.
func (c *Cloud) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	n, isVolume := volumeNumber(id)
	linode, isLinode := linodeNumber(node)
	switch {
	case !isVolume:
		return cloud.Device{}, fmt.Errorf("attach volume %.80q: %w: no volume has such an id", id, fault.NotFound)
	case !isLinode:
		return cloud.Device{}, fmt.Errorf("attach volume %d to %.80q: %w: no Linode has such an id", n, node, fault.NotFound)
	}
	ctx, cancel := c.bounded(budget.WithPriority(ctx, budget.Attach))
	defer cancel()
	m := &move{c: c, id: n, linode: linode, kind: kindAttach}
	if err := m.do(ctx, m.sendAttach, m.waitAttach); err != nil {
		return cloud.Device{}, err
	}
	return deviceOf(m.newest()), nil
}

// sendAttach sends the write. What a refusal means is decided from a fresh look at the state.
func (m *move) sendAttach(ctx context.Context) error {
	c := m.c
	m.note(false, false, time.Time{}, nil)
	shown := make(chan *volume, 1)
	err := c.work.Write(ctx, objectOf(m.id), func(ctx context.Context) error {
		asked := time.Now()
		v, err := c.sendAttach(ctx, m.id, m.linode)
		if err == nil {
			c.known.saw(v, asked)
			shown <- v
		}
		return err
	})
	if err == nil {
		m.note(true, true, time.Now(), <-shown)
		return nil
	}
	err = apiErrors.Write("send it", err)
	if !apiErrors.Refused(err) || fault.Of(err) == fault.Busy {
		return err
	}
	v, lookErr := c.look(ctx, m.id)
	if lookErr != nil {
		return lookErr
	}
	return m.decideAttach(ctx, v, err)
}

// decideAttach says what a refused attach means.
func (m *move) decideAttach(ctx context.Context, v *volume, refusal error) error {
	switch {
	case gone(v) || v.status == statusDeleting:
		return fmt.Errorf("%w: there is no such volume: %w", fault.NotFound, refusal)
	case v.linode == m.linode:
		return m.isHere(ctx, v, refusal)
	case v.linode != 0:
		return fmt.Errorf("it is attached to Linode %d; it can be attached here when it is detached there: %w: %w",
			v.linode, fault.Precondition, refusal)
	case v.status == statusBroken:
		return errBroken(v)
	case v.status != statusActive:
		if _, err := m.c.settled(ctx, m.id); err != nil {
			return err
		}
		return fmt.Errorf("%w: %w", fault.Busy, refusal) // what was in the way has ended
	}
	l, err := m.c.machine(ctx, m.linode)
	switch {
	case statusNotFound(err):
		return fmt.Errorf("%w: there is no such Linode: %w", fault.NotFound, refusal)
	case err != nil:
		return apiErrors.Read(fmt.Sprintf("look at Linode %d", m.linode), err)
	case l.region != v.region:
		return fmt.Errorf("the volume is in %s and the Linode in %s: %w: %w", v.region, l.region, fault.Precondition, refusal)
	case l.used >= l.limit:
		return fmt.Errorf("the Linode has no free slot, %d of %d are taken by volumes and local disks: %w: %w", l.used, l.limit, fault.Exhausted, refusal)
	case l.status == "offline":
		return fmt.Errorf("the Linode is powered off, and a volume can be attached to a running one only: %w: %w", fault.Precondition, refusal)
	}
	// The refusal was about a state that has changed since, or about something that the API does not tell.
	return m.puzzles.Count(fmt.Errorf("the volume is free and the Linode has room now: %w: %w", fault.Busy, refusal))
}

// isHere decides about a volume that names this Linode already: it is there, or on its way, or on its way out.
// An attachment that is being undone is none (failure A1 of the catalogue), and the volume does not show that.
func (m *move) isHere(ctx context.Context, v *volume, refusal error) error {
	leaving, _, err := m.c.detachUnderWay(ctx, m.id)
	switch {
	case err != nil:
		return apiErrors.Read(fmt.Sprintf("look at the events of volume %d", m.id), err)
	case leaving:
		return fmt.Errorf("it is being detached from here: %w: %w", fault.Busy, refusal)
	}
	m.note(!v.ready && v.told, false, time.Time{}, v)
	return nil
}

// waitAttach returns when the device is there.
func (m *move) waitAttach(ctx context.Context) error {
	tells := m.newest().told // an older API does not say whether a device is there; then the node has to see
	v, err := m.c.await(ctx, m.id, kindAttach, m.since(), func(v *volume) (bool, error) {
		switch {
		case gone(v):
			return false, fmt.Errorf("%w: the volume was deleted meanwhile", fault.NotFound)
		case v.linode == 0:
			return false, failed(v)
		case v.linode != m.linode:
			return false, fmt.Errorf("it was attached to Linode %d meanwhile: %w", v.linode, fault.Precondition)
		}
		return v.ready || !tells, nil
	})
	if err == nil {
		m.note(true, false, m.since(), v)
	}
	return err
}

// Detach takes the volume off the Linode, or off whatever Linode.
func (c *Cloud) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	n, ok := volumeNumber(id)
	if !ok {
		return nil // no volume, so it is free
	}
	ctx, cancel := c.bounded(budget.WithPriority(ctx, budget.Detach))
	defer cancel()
	if node == "" {
		return c.detachAll(ctx, n)
	}
	linode, ok := linodeNumber(node)
	if !ok {
		return nil // a volume is never a disk of what is no Linode
	}
	return c.detach(ctx, n, linode)
}

// detachAll takes the volume off whatever it is attached to, or is about to be.
func (c *Cloud) detachAll(ctx context.Context, id int) error {
	for {
		if err := c.work.Settled(ctx, objectOf(id)); err != nil {
			return err
		}
		v, err := c.look(ctx, id)
		if err != nil || gone(v) || v.linode == 0 {
			return err
		}
		if err := c.detach(ctx, id, v.linode); err != nil {
			return err
		}
	}
}

func (c *Cloud) detach(ctx context.Context, id, linode int) error {
	m := &move{c: c, id: id, linode: linode, kind: kindDetach, asked: time.Now()}
	return m.do(ctx, m.sendDetach, m.waitDetach)
}

// sendDetach sends the write if the volume is here. The API takes a volume off whatever Linode it is attached
// to, so this is decided by a look that began after the call did, and holds for a short time only.
func (m *move) sendDetach(ctx context.Context) error {
	c := m.c
	m.note(false, false, time.Time{}, nil)
	for {
		if err := c.work.Settled(ctx, objectOf(m.id)); err != nil {
			return err
		}
		v, err := m.hereSince(ctx)
		if err != nil || v == nil {
			return err
		}
		err = c.work.Write(remote.LeaveBy(ctx, v.asked.Add(shownFor)), objectOf(m.id), func(ctx context.Context) error {
			return c.sendDetach(ctx, m.id)
		})
		switch {
		case errors.Is(err, remote.ErrLate):
			continue // the budget came late: look again
		case err == nil:
			m.note(true, true, time.Now(), nil)
			return nil
		}
		err = apiErrors.Write("send it", err)
		if !apiErrors.Refused(err) || fault.Of(err) == fault.Busy {
			return err
		}
		return m.decideDetach(ctx, err)
	}
}

// hereSince returns the volume if it is on the Linode, or on its way there, and else nil. One look answers for
// many volumes; that a volume is not here is said only by a look at it alone.
func (m *move) hereSince(ctx context.Context) (*volume, error) {
	v, err := m.c.shown(ctx, m.id, m.asked)
	if err != nil || !gone(v) && v.linode == m.linode {
		return v, err
	}
	if v, err = m.c.look(ctx, m.id); err != nil || gone(v) || v.linode != m.linode {
		return nil, err
	}
	return v, nil
}

// decideDetach says what a refused detach means.
func (m *move) decideDetach(ctx context.Context, refusal error) error {
	v, err := m.c.look(ctx, m.id)
	switch {
	case err != nil:
		return err
	case gone(v) || v.linode != m.linode:
		return nil
	}
	return m.puzzles.Count(fmt.Errorf("%w: %w", fault.Busy, refusal))
}

// waitDetach returns when the volume is free of the Linode.
func (m *move) waitDetach(ctx context.Context) error {
	left := false
	asked := time.Now()
	_, err := m.c.await(ctx, m.id, kindDetach, m.since(), func(v *volume) (bool, error) {
		if gone(v) || v.linode != m.linode {
			return true, nil
		}
		// The device goes first. If it is back, the cloud has given the detach up.
		if left && v.ready {
			return false, failed(v)
		}
		left = left || v.told && !v.ready
		if time.Since(asked) < max(longDetach, 2*m.c.changes.Usual(kindDetach)) {
			return false, nil
		}
		asked = time.Now()
		return m.stays(ctx)
	})
	return err
}

// longDetach is how long a detach may take until the events are asked about it.
const longDetach = 10 * time.Second

// stays fails if the cloud has given the detach up, and reports whether it has ended otherwise. The volume may show
// that it is attached until the very end, so only the events tell.
func (m *move) stays(ctx context.Context) (over bool, err error) {
	leaving, known, err := m.c.detachUnderWay(ctx, m.id)
	if err != nil || leaving || !known {
		return false, nil //nolint:nilerr // a look that failed is a delay
	}
	v, err := m.c.look(ctx, m.id)
	switch {
	case err != nil:
		return false, nil //nolint:nilerr // the same
	case gone(v) || v.linode != m.linode:
		return true, nil
	}
	return false, failed(v)
}
