package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// fused is a context that ends at its n-th use. A backend checks its context before and after each step that can take time, so an
// increasing n ends a call at each of its points in turn.
type fused struct {
	context.Context

	end  context.CancelFunc
	left atomic.Int64
}

func newFused(ctx context.Context, n int) *fused {
	inner, end := context.WithCancel(ctx)
	f := &fused{Context: inner, end: end}
	f.left.Store(int64(n))
	return f
}

func (f *fused) use() {
	if f.left.Add(-1) == 0 {
		f.end()
	}
}

// Done counts one use.
func (f *fused) Done() <-chan struct{} {
	f.use()
	return f.Context.Done()
}

// Err counts one use.
func (f *fused) Err() error {
	f.use()
	return f.Context.Err()
}

// points returns the maximum number of points at which calls are interrupted.
func (h Harness) points() int {
	if h.Slow {
		return 8
	}
	return 40
}

// ended calls with contexts that end at each point in turn, and then with deadlines within the duration of a whole call. After each
// call, look checks the state.
func (e *env) ended(call func(ctx context.Context, n int) error, look func(n int, err error)) {
	e.Helper()
	began := time.Now()
	n := 1
	for ; n <= e.h.points(); n++ {
		ctx := newFused(e.Context(), n)
		began = time.Now()
		err := call(ctx, n)
		whole := ctx.Context.Err() == nil
		ctx.end()
		look(n, err)
		if whole {
			break
		}
	}
	took := time.Since(began)
	for part := range time.Duration(5) {
		n++
		ctx, cancel := context.WithTimeout(e.Context(), took*(part+1)/6)
		err := call(ctx, n)
		cancel()
		look(n, err)
	}
}

// sent fails the test if the error of a call is not fault.Uncertain although the object was created.
func (e *env) sent(err error, exists bool, call string) {
	e.Helper()
	if err != nil && exists && fault.Of(err) != fault.Uncertain {
		e.Errorf("%s = %v, which is not %q, but what it asked for exists", call, err, fault.Uncertain)
	}
}

func (h Harness) testContexts(t *testing.T) {
	h.check(t, "a context that has ended sends no write", func(e *env) {
		ctx, cancel := context.WithCancel(e.Context())
		vol := e.volume("there")
		cancel()
		_, err := e.c.CreateVolume(ctx, e.request("never"))
		e.canceled(err, "CreateVolume")
		e.canceled(e.c.DeleteVolume(ctx, vol.ID), "DeleteVolume")
		e.left(vol.ID)
		if e.caps.Expand {
			_, err = e.c.ExpandVolume(ctx, vol.ID, vol.Size+e.caps.SizeStep)
			e.canceled(err, "ExpandVolume")
		}
		if e.caps.Attach {
			_, err = e.c.Attach(ctx, vol.ID, e.h.Nodes[0])
			e.canceled(err, "Attach")
			e.at(vol.ID)
		}
		if e.caps.Snapshots {
			_, err = e.c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: "never", Volume: vol.ID})
			e.canceled(err, "CreateSnapshot")
			e.snapshotsLeft()
		}
		if got := e.get(vol.ID); got.Size != vol.Size {
			e.Errorf("the volume has %s, it had %s", got.Size, vol.Size)
		}
	})
	h.check(t, "a context that ends stops the waiting", func(e *env) {
		ctx, cancel := context.WithCancel(e.Context())
		vol := e.volume("there")
		cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.everyCall(ctx, vol)
		}()
		select {
		case <-done:
		case <-time.After(e.h.Patience):
			e.Fatal("a call goes on although its context has ended")
		}
	})
	h.testCutVolumes(t)
	h.testCutModify(t)
	h.testCutSnapshots(t)
	h.testCutAttach(t)
}

func (h Harness) testCutVolumes(t *testing.T) {
	h.check(t, "a create that is cut off anywhere makes one volume when it is repeated", func(e *env) {
		var want []cloud.VolumeID
		name := func(n int) string { return fmt.Sprintf("cut-%d", n) }
		e.ended(func(ctx context.Context, n int) error {
			_, err := e.c.CreateVolume(ctx, e.request(name(n)))
			return err
		}, func(n int, err error) {
			_, findErr := e.c.FindVolume(e.Context(), name(n))
			e.sent(err, findErr == nil, "CreateVolume")
			want = append(want, e.volume(name(n)).ID)
		})
		e.left(want...)
	})
	h.check(t, "a delete that is cut off anywhere is finished by a repeat", func(e *env) {
		var id cloud.VolumeID
		e.ended(func(ctx context.Context, n int) error {
			id = e.volume(fmt.Sprintf("cut-%d", n)).ID
			return e.c.DeleteVolume(ctx, id)
		}, func(_ int, _ error) {
			_, err := until(e, func() (struct{}, error) { return struct{}{}, e.c.DeleteVolume(e.Context(), id) })
			e.ok(err, "DeleteVolume")
			e.left()
		})
	})
}

func (h Harness) testCutModify(t *testing.T) {
	h.modifies(t, "a modification that is cut off anywhere is finished by a repeat", func(e *env, vol cloud.Volume) {
		value := func(n int) cloud.Tag { return cloud.Tag{Key: "team", Value: fmt.Sprintf("cut-%d", n)} }
		e.ended(func(ctx context.Context, n int) error {
			return e.c.ModifyVolume(ctx, vol.ID, []cloud.Tag{value(n)})
		}, func(n int, _ error) {
			_, err := until(e, func() (struct{}, error) { return struct{}{}, e.modify(vol.ID, value(n)) })
			e.ok(err, "ModifyVolume")
			e.tagged(vol, value(n))
		})
	})
}

func (h Harness) testCutSnapshots(t *testing.T) {
	h.snapshots(t, "a snapshot that is cut off anywhere is one snapshot when it is repeated", func(e *env, vol cloud.Volume) {
		var want []cloud.SnapshotID
		name := func(n int) string { return fmt.Sprintf("cut-%d", n) }
		e.ended(func(ctx context.Context, n int) error {
			_, err := e.c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: name(n), Volume: vol.ID})
			return err
		}, func(n int, err error) {
			_, findErr := e.c.FindSnapshot(e.Context(), name(n))
			e.sent(err, findErr == nil, "CreateSnapshot")
			want = append(want, e.snapshot(name(n), vol.ID).ID)
		})
		e.snapshotsLeft(want...)
		for _, id := range want {
			e.ok(e.c.DeleteSnapshot(e.Context(), id), "DeleteSnapshot")
		}
		e.snapshotsLeft()
	})
}

func (h Harness) testCutAttach(t *testing.T) {
	h.attaches(t, "an attach or detach that is cut off anywhere is finished by a repeat", func(e *env, vol cloud.Volume) {
		node := e.h.Nodes[0]
		attach := func(ctx context.Context) error {
			_, err := e.c.Attach(ctx, vol.ID, node)
			return err
		}
		detach := func(ctx context.Context) error { return e.c.Detach(ctx, vol.ID, node) }
		finish := func(call func(context.Context) error) {
			_, err := until(e, func() (struct{}, error) { return struct{}{}, call(e.Context()) })
			e.ok(err, "the repeat")
		}
		e.ended(func(ctx context.Context, _ int) error { return attach(ctx) }, func(int, error) {
			finish(attach)
			e.at(vol.ID, node)
			finish(detach)
		})
		e.ended(func(ctx context.Context, _ int) error {
			finish(attach)
			return detach(ctx)
		}, func(int, error) {
			finish(detach)
			e.at(vol.ID)
		})
	})
}

// canceled fails the test unless the error wraps the context's.
func (e *env) canceled(err error, call string) {
	e.Helper()
	if !errors.Is(err, context.Canceled) {
		e.Errorf("%s with an ended context = %v, want %v", call, err, context.Canceled)
	}
}

// everyCall makes each call once. The type checked checks the errors too.
func (e *env) everyCall(ctx context.Context, vol cloud.Volume) {
	for name, call := range Calls(e.c, e.request("there"), Objects{Volume: vol.ID, Snapshot: "s", Node: "node"}) {
		if err := call(ctx); err != nil && fault.Of(err) == fault.None && !errors.Is(err, context.Canceled) {
			e.Errorf("%s with an ended context = %v", name, err)
		}
	}
}
