package yandex_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
)

// A cut kills a controller at its n-th call to the folder: before the call has an effect, or after it.
type cut struct {
	at    int
	after bool
	kill  context.CancelFunc

	mu    sync.Mutex
	armed bool
	count int
}

// decide is asked by the folder about each call.
func (c *cut) decide(emulator.Call) faults.Effect {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed {
		return faults.Effect{}
	}
	c.count++
	switch {
	case c.count < c.at:
		return faults.Effect{}
	case c.count == c.at && c.after:
		defer c.kill()
		return faults.Effect{Lost: faults.LostAfter}
	}
	c.kill()
	return faults.Effect{Lost: faults.LostBefore}
}

func (c *cut) arm(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = on
}

func (c *cut) reached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count >= c.at
}

// A step is a call that a controller may be killed in, what comes before it, and what has to be true after
// a new controller has repeated it.
type step struct {
	before func(t *testing.T, c cloud.Cloud) cloud.VolumeID
	call   func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error
	after  func(t *testing.T, folder *emulator.Cloud, c *yandex.Cloud, id cloud.VolumeID)
}

func origin(t *testing.T, c cloud.Cloud) cloud.VolumeID { return volume(t, c, "origin").ID }

func attached(t *testing.T, c cloud.Cloud) cloud.VolumeID {
	id := origin(t, c)
	_, err := c.Attach(t.Context(), id, node1)
	must(t, err)
	return id
}

// holds fails the test unless the folder holds this many of each.
func holds(disks, snapshots int) func(*testing.T, *emulator.Cloud, *yandex.Cloud, cloud.VolumeID) {
	return func(t *testing.T, folder *emulator.Cloud, c *yandex.Cloud, _ cloud.VolumeID) {
		t.Helper()
		must(t, c.Sweep(t.Context()))
		if d, s := folder.Disks(), folder.Snapshots(); len(d) != disks || len(s) != snapshots {
			t.Errorf("the folder holds %+v and %+v, want %d disks and %d snapshots", d, s, disks, snapshots)
		}
	}
}

func onMachine(machine string) func(*testing.T, *emulator.Cloud, *yandex.Cloud, cloud.VolumeID) {
	return func(t *testing.T, folder *emulator.Cloud, _ *yandex.Cloud, id cloud.VolumeID) {
		t.Helper()
		at(t, folder, id, machine)
	}
}

func steps() map[string]step {
	create := func(edit func(*cloud.CreateVolumeRequest, cloud.VolumeID)) func(context.Context, cloud.Cloud, cloud.VolumeID) error {
		return func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			req := request("made")
			edit(&req, id)
			vol, err := c.CreateVolume(ctx, req)
			if err == nil && (vol.Size < req.Size || vol.Source != req.Source) {
				return fmt.Errorf("it answers %+v for %+v", vol, req)
			}
			return err
		}
	}
	return map[string]step{
		"create": {origin, create(func(*cloud.CreateVolumeRequest, cloud.VolumeID) {}), holds(2, 0)},
		"create in a second zone": {origin, create(func(r *cloud.CreateVolumeRequest, _ cloud.VolumeID) {
			r.Zones = []string{"no-such-zone", "ru-central1-d"}
		}), holds(2, 0)},
		"clone to a larger size": {origin, create(func(r *cloud.CreateVolumeRequest, id cloud.VolumeID) {
			r.Source.Volume, r.Size = id, 2*cloud.GiB
		}), holds(2, 0)},
		"attach": {origin, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.Attach(ctx, id, node1)
			return err
		}, onMachine(machine1)},
		"detach": {attached, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.Detach(ctx, id, node1)
		}, onMachine("")},
		"detach from wherever it is": {attached, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.Detach(ctx, id, "")
		}, onMachine("")},
		"expand while attached": {attached, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			exp, err := c.ExpandVolume(ctx, id, 2*cloud.GiB)
			if err == nil && exp.Size != 2*cloud.GiB {
				return fmt.Errorf("it answers %+v", exp)
			}
			return err
		}, onMachine(machine1)},
		"snapshot": {origin, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.CreateSnapshots(ctx, cloud.CreateSnapshotsRequest{Name: "s", Volumes: []cloud.VolumeID{id}})
			return err
		}, holds(1, 1)},
		"delete": {origin, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.DeleteVolume(ctx, id)
		}, holds(0, 0)},
	}
}

// worlds are the ways in which a folder may treat names and keys.
var worlds = map[string]emulator.Rules{
	"names are unique":   {},
	"names repeat":       {NamesRepeat: true},
	"keys are forgotten": {KeysForgottenAfter: clock.Fixed(time.Millisecond)},
}

// C1, C2, A10: a controller is killed at each of its calls in turn, before and after the call's effect; a
// new one that is asked the same converges, and nothing is left or doubled.
func TestAControllerKilledAtAnyCallIsContinuedByTheNext(t *testing.T) {
	for world, rules := range worlds {
		for name, s := range steps() {
			t.Run(world+"/"+name, func(t *testing.T) {
				cuts := 0
				for _, after := range []bool{false, true} {
					for n, reached := 1, true; reached; n++ {
						simulated(t, func(t *testing.T) { reached = s.cutAt(t, rules, &cut{at: n, after: after}) })
						if reached {
							cuts++
						}
					}
				}
				if cuts < 2 {
					t.Errorf("the controller was killed %d times only", cuts)
				}
			})
		}
	}
}

// cutAt kills a controller once and lets the next one go on. It reports whether the call came so far.
func (s step) cutAt(t *testing.T, rules emulator.Rules, knife *cut) (reached bool) {
	folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(2 * time.Millisecond)), Rules: rules, Decide: knife.decide})
	id := s.before(t, open(t, folder))
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	knife.kill = kill
	dying := open(t, folder)
	knife.arm(true)
	err := s.call(ctx, stack(dying), id)
	knife.arm(false)
	if !knife.reached() {
		must(t, err)
		return false
	}
	next := open(t, folder, func(cfg *yandex.Config) { cfg.LeftOverAge = time.Nanosecond })
	repeat(t, func() error { return s.call(t.Context(), stack(next), id) })
	s.after(t, folder, next, id)
	return true
}

// repeat calls as a sidecar does, in simulated time.
func repeat(t *testing.T, call func() error) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := call()
		if err == nil {
			return
		}
		switch fault.Of(err) {
		case fault.Unavailable, fault.Uncertain, fault.Busy, fault.Precondition:
		default:
			t.Errorf("the repeat = %v", err)
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the repeats do not converge: %v", err)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Two controllers on one folder are asked the same at once: locks and queues of one process carry no
// correctness.
func TestTwoControllersAtOnceConverge(t *testing.T) {
	for world, rules := range worlds {
		for name, s := range steps() {
			t.Run(world+"/"+name, func(t *testing.T) {
				simulated(t, func(t *testing.T) {
					folder := start(t, emulator.Options{Durations: emulator.Each(clock.Span{Least: time.Millisecond, Spread: 5 * time.Millisecond}), Rules: rules})
					id := s.before(t, open(t, folder))
					young := func(cfg *yandex.Config) { cfg.LeftOverAge = time.Nanosecond }
					controllers := []*yandex.Cloud{open(t, folder, young), open(t, folder, young)}
					var all sync.WaitGroup
					for _, c := range controllers {
						all.Go(func() { repeat(t, func() error { return s.call(t.Context(), stack(c), id) }) })
					}
					all.Wait()
					s.after(t, folder, controllers[0], id)
				})
			})
		}
	}
}
