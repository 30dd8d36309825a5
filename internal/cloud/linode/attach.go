package linode

import (
	"context"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

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
	m.doubt(time.Time{})
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
	leaving, known, err := m.c.detachUnderWay(ctx, m.id)
	switch {
	case err != nil:
		return apiErrors.Read(fmt.Sprintf("look at the events of volume %d", m.id), err)
	case leaving:
		return fmt.Errorf("it is being detached from here: %w: %w", fault.Busy, refusal)
	}
	if !known {
		m.doubt(time.Now())
	}
	m.note(!known || !v.ready && v.told, false, time.Time{}, v)
	return nil
}

// waitAttach returns when the device is there.
func (m *move) waitAttach(ctx context.Context) error {
	tells := m.newest().told // an older API does not say whether a device is there; then the node has to see
	asked := time.Now()
	v, err := m.c.await(ctx, m.id, kindAttach, m.since(), func(v *volume) (bool, error) {
		switch {
		case gone(v):
			return false, fmt.Errorf("%w: the volume was deleted meanwhile", fault.NotFound)
		case v.linode == 0:
			return false, failed(v)
		case v.linode != m.linode:
			return false, fmt.Errorf("it was attached to Linode %d meanwhile: %w", v.linode, fault.Precondition)
		case v.ready || !tells:
			return m.stays(), nil
		case time.Since(asked) < m.long():
			return false, nil
		}
		asked = time.Now()
		return false, m.comes(ctx)
	})
	if err == nil {
		m.note(true, false, m.since(), v)
	}
	return err
}

// comes fails if the cloud has ended the attach and the device is not there.
func (m *move) comes(ctx context.Context) error {
	coming, known, err := m.c.attachUnderWay(ctx, m.id)
	if err != nil || coming || !known {
		return nil //nolint:nilerr // a look that failed is a delay
	}
	v, err := m.c.look(ctx, m.id)
	if err != nil || gone(v) || v.ready {
		return nil //nolint:nilerr // the same, and the next look tells
	}
	return failed(v)
}
