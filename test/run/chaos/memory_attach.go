package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Attach lands after its time, whether somebody still waits for it or not.
func (c *memoryClient) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	return move(ctx, c, "Attach", id, func(ctx context.Context) (cloud.Device, error) { return c.Cloud.Attach(ctx, id, node) })
}

// Detach waits for an attach that is under way before it says that the volume is free.
func (c *memoryClient) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	_, err := move(ctx, c, "Detach", id, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.Cloud.Detach(ctx, id, node)
	})
	return err
}

// move is a change of where a volume is attached: it goes on in the cloud when its caller goes away, and
// the next one of the volume waits for it.
func move[T any](ctx context.Context, c *memoryClient, name string, id cloud.VolumeID, effect func(ctx context.Context) (T, error)) (T, error) {
	var none, answer T
	ctx, cancel := joined(ctx, c.life)
	defer cancel()
	k := &call{name: name, object: c.w.nameOf(id), writes: true, chances: []chance{{Failed, .08}}}
	if err := c.send(ctx, k); err != nil {
		return none, err
	}
	landed, err := c.w.turn(ctx, id)
	if err != nil {
		return none, fmt.Errorf("%s: not sent: %w", name, err)
	}
	took := between(k.rng, time.Second, 10*time.Second)
	if k.fault == Slow {
		took, k.fault = slowness(k.rng), ""
	}
	failed := k.fault == Failed
	c.w.working.Go(func() {
		answer, err = land(c.w, id, took, failed, effect)
		c.w.leave(id, landed)
		c.w.changed()
	})
	if lost := c.answer(ctx, k); lost != nil {
		return none, lost
	}
	select {
	case <-landed:
		return answer, err
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w: %w", name, fault.Uncertain, ctx.Err())
	}
}

// land lets the time pass and then makes the change.
func land[T any](w *memoryWorld, id cloud.VolumeID, took time.Duration, failed bool, effect func(ctx context.Context) (T, error)) (T, error) {
	var none T
	if wait.Sleep(w.end, took) != nil || failed {
		return none, fmt.Errorf("volume %s: the operation failed: %w", id, fault.Unavailable)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was, err := w.ours.GetVolume(w.end, id)
	if err == nil {
		w.before[id] = past{on: was.AttachedTo, until: time.Now()}
	}
	return effect(w.end)
}

// Attach moves a volume by hand.
func (w *memoryWorld) Attach(id cloud.VolumeID, from, to cloud.NodeID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	vol, err := w.ours.GetVolume(w.end, id)
	switch {
	case err != nil:
		return err
	case w.last[id] != nil:
		return fmt.Errorf("volume %s: %w", id, fault.Busy)
	case !slices.Equal(vol.AttachedTo, nodesOf(from)):
		return fmt.Errorf("volume %s is attached to %v: %w", id, vol.AttachedTo, fault.Precondition)
	case to == "":
		return w.ours.Detach(w.end, id, from)
	}
	_, err = w.ours.Attach(w.end, id, to)
	return err
}

// nodesOf is where a volume is that is there alone; "" is nowhere.
func nodesOf(node cloud.NodeID) []cloud.NodeID {
	if node == "" {
		return nil
	}
	return []cloud.NodeID{node}
}

// turn waits until those that came before are through with where the volume is attached, and takes the
// place. They pass in the order in which they came.
func (w *memoryWorld) turn(ctx context.Context, id cloud.VolumeID) (chan struct{}, error) {
	w.mu.Lock()
	before := w.last[id]
	mine := make(chan struct{})
	w.last[id] = mine
	w.mu.Unlock()
	if before == nil {
		return mine, nil
	}
	select {
	case <-before:
		return mine, nil
	case <-ctx.Done():
		w.working.Go(func() {
			select {
			case <-before:
			case <-w.end.Done():
			}
			w.leave(id, mine)
		})
		return nil, ctx.Err()
	}
}

// leave gives the place to the next.
func (w *memoryWorld) leave(id cloud.VolumeID, mine chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last[id] == mine {
		delete(w.last, id)
	}
	close(mine)
}
