package linode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

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
		err = c.work.Write(remote.LeaveBy(ctx, v.until), objectOf(m.id), func(ctx context.Context) error {
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
// many volumes if it proves that it is young. All else, and that a volume is not here, is said only by a look at
// it alone.
func (m *move) hereSince(ctx context.Context) (*volume, error) {
	here := func(v *volume) bool { return !gone(v) && v.linode == m.linode }
	v, err := m.c.shown(ctx, m.id, m.asked)
	if err != nil || here(v) && time.Now().Before(v.until) {
		return v, err
	}
	if v, err = m.c.look(ctx, m.id); err != nil || !here(v) {
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
	v, err := m.c.await(ctx, m.id, kindDetach, m.since(), func(v *volume) (bool, error) {
		if gone(v) || v.linode != m.linode {
			return true, nil
		}
		// The device goes first. If it is back, the cloud has given the detach up.
		if left && v.ready {
			return false, failed(v)
		}
		left = left || v.told && !v.ready
		if time.Since(asked) < m.long() {
			return false, nil
		}
		asked = time.Now()
		return m.left(ctx)
	})
	if err == nil && !gone(v) && v.linode == 0 {
		m.c.known.change(m.id, func(k *volume) {
			if k.linode == 0 {
				k.sure = v.asked.Round(0) // by this very detach
			}
		})
	}
	return err
}

// left fails if the cloud has given the detach up, and reports whether it has ended otherwise. The volume may show
// that it is attached until the very end, so only the events tell.
func (m *move) left(ctx context.Context) (over bool, err error) {
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
