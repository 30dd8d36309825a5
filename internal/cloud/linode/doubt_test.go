package linode_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// A1: a new leader repeats a detach while another one is asked for, and the list that shows both is older than
// the volume's move to another Linode. What a list alone shows takes no volume off anything.
func TestALateDetachDoesNotBelieveAList(t *testing.T) {
	for name, knows := range map[string]func(t *testing.T, second cloud.Cloud, ids ...cloud.VolumeID){
		"the second controller has just begun": func(*testing.T, cloud.Cloud, ...cloud.VolumeID) {},
		"a list has shown it the volume": func(t *testing.T, second cloud.Cloud, _ ...cloud.VolumeID) {
			_, err := second.ListVolumes(t.Context(), cloud.Page{})
			must(t, err)
		},
		"it has attached the volume itself a moment ago, and stood still since": func(t *testing.T, second cloud.Cloud, ids ...cloud.VolumeID) {
			must(t, second.Detach(t.Context(), ids[0], node1))
			attach(t, second, ids[0], node1)
			_, err := second.GetVolume(t.Context(), ids[1])
			must(t, err)
		},
		"it has seen both volumes a moment ago": func(t *testing.T, second cloud.Cloud, ids ...cloud.VolumeID) {
			for _, id := range ids {
				_, err := second.GetVolume(t.Context(), id)
				must(t, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(time.Second))})
				first, second := open(t, account), open(t, account)
				vol, other := volume(t, first, "ab"), volume(t, first, "cd")
				attach(t, first, vol.ID, node1)
				attach(t, first, other.ID, node2)
				knows(t, second, vol.ID, other.ID)
				time.Sleep(10 * time.Second)
				must(t, first.Detach(t.Context(), vol.ID, node1))
				attach(t, first, vol.ID, node2)
				time.Sleep(time.Second)
				account.Arm(emulator.Fault{Method: "GET", Route: volumesRoute, Effect: faults.Effect{StaleAge: clock.Fixed(6 * time.Second)}})
				var all sync.WaitGroup
				detach := func(id cloud.VolumeID, node cloud.NodeID) {
					all.Go(func() {
						if err := second.Detach(t.Context(), id, node); err != nil {
							t.Errorf("Detach of %s from %s: %v", id, node, err)
						}
					})
				}
				detach(vol.ID, node1)
				detach(other.ID, node2)
				all.Wait()
				at(t, account, vol.ID, linode2)
				at(t, account, other.ID, 0)
			})
		})
	}
}

// A1: where the token may not read the events, an attach does not take an attachment for its own that a detach may be undoing,
// however long that takes. It says which right is missing, and attaches once the volume is free.
func TestAnAttachMeetsADetachWithoutTheEvents(t *testing.T) {
	for name, rules := range map[string]emulator.Rules{"the device goes first": {}, "the device shows to the end": {ReadyWhileDetaching: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Rules: rules})
				account.Arm(emulator.Fault{Method: "GET", Route: eventsRoute, Effect: faults.Effect{Status: 403}})
				dying, living := open(t, account), open(t, account)
				vol := volume(t, dying, "a")
				attach(t, dying, vol.ID, node1)
				post(account, detachRoute, faults.Effect{Takes: clock.Fixed(25 * time.Second)})
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				want(t, dying.Detach(ctx, vol.ID, node1), fault.Uncertain)
				for err := error(fault.Denied); err != nil; time.Sleep(2 * time.Second) {
					_, err = living.Attach(t.Context(), vol.ID, node1)
					switch leaving := len(account.Running()) > 0; {
					case err == nil && leaving:
						t.Error("the attachment that is being undone was taken for the call's own")
					case err != nil:
						want(t, err, fault.Denied, "events:read_only")
					}
				}
				time.Sleep(time.Minute)
				at(t, account, vol.ID, linode1)
			})
		})
	}
}

// A12: an attach that has ended without a device, and those that the volume refuses because of that, hold up the other volumes of their Linodes
// for seconds, and not for as long as their callers wait.
func TestAnAttachThatNeverComesLetsOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Rules: emulator.Rules{FailedAttachStays: true}, Durations: emulator.Each(clock.Fixed(time.Second))})
		c := open(t, account)
		vol, other := volume(t, c, "ab"), volume(t, c, "cd")
		post(account, attachRoute, faults.Effect{Errored: true})
		began := time.Now()
		done := make(chan error, 1)
		go func() { _, err := c.Attach(t.Context(), vol.ID, node1); done <- err }()
		until(t, "the attach is under way", func() bool { return len(account.Running()) > 0 })
		attach(t, c, other.ID, node1)
		want(t, <-done, fault.Unavailable, "look at the Linode's and the volume's events")
		want(t, second(c.Attach(t.Context(), vol.ID, node1)), fault.Unavailable, "shows no device")
		want(t, second(c.Attach(t.Context(), vol.ID, node2)), fault.Precondition, "Linode "+string(node1))
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the attaches took %s", took)
		}
		must(t, c.Detach(t.Context(), vol.ID, node1))
		attach(t, c, vol.ID, node1)
	})
}

// No region that a request names can be one, and the API does not say which there are.
func TestZonesThatAreNoRegions(t *testing.T) {
	account := start(t, emulator.Options{})
	account.Arm(emulator.Fault{Method: "GET", Route: "/{apiVersion}/regions", Effect: faults.Effect{Status: 500}})
	req := request("a")
	req.Zones = []string{"US East", "../us-ord"}
	_, err := open(t, account).CreateVolume(t.Context(), req)
	want(t, err, fault.Exhausted, "US East")
}

// leaveCopy returns a controller whose clone was interrupted, one whose sweep has seen the copy, and the clone's request.
func leaveCopy(t *testing.T, account *emulator.Cloud) (c, sweeper *linode.Cloud, req cloud.CreateVolumeRequest) {
	t.Helper()
	byHand := func(cfg *linode.Config) { cfg.SweepEvery, cfg.OrphanAge = -1, time.Hour }
	c, sweeper = open(t, account, byHand), open(t, account, byHand)
	req = copyOf("copy", volume(t, c, "origin").ID)
	account.Arm(emulator.Fault{Method: "PUT", Times: 1, Effect: faults.Effect{Lost: faults.LostBefore}})
	_, err := c.CreateVolume(t.Context(), req)
	want(t, err, fault.Uncertain)
	must(t, sweeper.Sweep(t.Context()))
	return c, sweeper, req
}

// A copy that a clone has gone on with is no orphan, whatever an old list shows: its request may have been
// answered by now.
func TestASweepDoesNotBelieveAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c, sweeper, req := leaveCopy(t, account)
		time.Sleep(2 * time.Hour)
		made := create(t, stack(c), req)
		time.Sleep(10 * time.Second)
		account.Arm(emulator.Fault{Method: "GET", Route: volumesRoute, Effect: faults.Effect{StaleAge: clock.Fixed(20 * time.Second)}})
		must(t, sweeper.Sweep(t.Context()))
		at(t, account, made.ID, 0) // it exists
	})
}

// A sweep that has begun to remove an old copy when a clone goes on with it does not take a volume away that the clone
// has answered for.
func TestASweepMeetsAClone(t *testing.T) {
	for name, late := range map[string]struct {
		sweepAt, cloneAt time.Duration
		sweep, clone     faults.Effect
	}{
		"the delete is under way already":  {cloneAt: 100 * time.Millisecond, sweep: faults.Effect{Takes: clock.Fixed(3 * time.Second)}},
		"the delete begins meanwhile":      {sweepAt: 100 * time.Millisecond, sweep: faults.Effect{Takes: clock.Fixed(3 * time.Second)}, clone: faults.Effect{Delay: clock.Fixed(time.Second)}},
		"the delete comes after the label": {cloneAt: 100 * time.Millisecond, sweep: faults.Effect{Delay: clock.Fixed(1500 * time.Millisecond)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{})
				c, sweeper, req := leaveCopy(t, account)
				time.Sleep(2 * time.Hour)
				account.Arm(emulator.Fault{Method: "DELETE", Times: 1, Effect: late.sweep})
				account.Arm(emulator.Fault{Method: "PUT", Times: 1, Effect: late.clone})
				swept := make(chan error, 1)
				time.AfterFunc(late.sweepAt, func() { swept <- sweeper.Sweep(t.Context()) })
				time.Sleep(late.cloneAt)
				synctest.Wait()
				made, err := c.CreateVolume(t.Context(), req)
				must(t, <-swept)
				time.Sleep(time.Minute)
				if err == nil {
					at(t, account, made.ID, 0) // it exists
				} else {
					want(t, err, fault.Unavailable)
				}
				made = create(t, stack(c), req)
				at(t, account, made.ID, 0)
			})
		})
	}
}

// A delete does not rely on the API to refuse what is attached.
func TestADeleteOfWhatIsAttachedIsNotSent(t *testing.T) {
	for name, tc := range map[string]struct{ detached, mine bool }{
		"by another controller, long after the create":               {},
		"by another controller, long after this one has detached it": {detached: true},
		"by this controller":                      {mine: true},
		"by this controller, for the second time": {detached: true, mine: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(time.Second))})
				mine, other := open(t, account), open(t, account)
				vol := volume(t, mine, "a")
				if tc.detached {
					attach(t, mine, vol.ID, node1)
					must(t, mine.Detach(t.Context(), vol.ID, node1))
				}
				time.Sleep(3 * time.Minute)
				last := other
				if tc.mine {
					last = mine
				}
				attach(t, last, vol.ID, node2)
				account.Arm(emulator.Fault{Method: "GET", Route: volumesRoute, Effect: faults.Effect{StaleAge: clock.Fixed(time.Minute)}})
				want(t, mine.DeleteVolume(t.Context(), vol.ID), fault.Precondition, "attached to Linode")
				if _, found := account.Volume(number(t, vol.ID)); !found {
					t.Error("the volume is gone")
				}
			})
		})
	}
}
