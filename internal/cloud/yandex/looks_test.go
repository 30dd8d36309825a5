package yandex_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
)

// A9 and P5: a list that lags behind shows disks as they were before their last changes. No change is taken for done
// by it: an attach, a detach and a delete end when the cloud has done them, however old the lists are.
func TestAnOldListEndsNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(2 * time.Second)), Rules: emulator.Rules{ParallelOperations: true}})
		c := open(t, folder)
		ids := []cloud.VolumeID{volume(t, c, "a").ID, volume(t, c, "b").ID, volume(t, c, "c").ID}
		nodes := []cloud.NodeID{node1, node2, node1}
		for age := range 12 {
			folder.Arm(emulator.Fault{Route: "DiskService/List", Effect: faults.Effect{StaleAge: clock.Fixed(time.Duration(age) * time.Second)}})
			all := func(call func(n int) error, after func(n int)) {
				t.Helper()
				var calls sync.WaitGroup
				for n := range ids {
					calls.Go(func() {
						if err := call(n); err != nil {
							t.Errorf("with lists of %d s: %v", age, err)
						}
						after(n)
					})
				}
				calls.Wait()
			}
			all(func(n int) error { _, err := c.Attach(t.Context(), ids[n], nodes[n]); return err }, func(n int) { at(t, folder, ids[n], string(nodes[n])) })
			all(func(n int) error { return c.Detach(t.Context(), ids[n], nodes[n]) }, func(n int) { at(t, folder, ids[n], "") })
			folder.Disarm()
		}
		var deletes sync.WaitGroup
		folder.Arm(emulator.Fault{Route: "DiskService/List", Effect: faults.Effect{StaleAge: clock.Fixed(time.Hour)}})
		for _, id := range ids {
			deletes.Go(func() {
				if err := c.DeleteVolume(t.Context(), id); err != nil {
					t.Error(err)
				}
				if d, found := folder.Disk(string(id)); found {
					t.Errorf("DeleteVolume answered while %+v", d)
				}
			})
		}
		deletes.Wait()
	})
}

// A cloud that shows a change when it has taken it on, and then takes it back, is not believed: the end of the
// operation counts.
func TestAChangeThatShowsBeforeItsEndIsNotBelieved(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(2 * time.Second)), Rules: emulator.Rules{ChangeOnAccept: true, ParallelOperations: true}})
		c := open(t, folder)
		var ids []cloud.VolumeID
		for n := range 4 {
			ids = append(ids, volume(t, c, fmt.Sprintf("v%d", n)).ID)
		}
		for range 3 {
			folder.Arm(emulator.Fault{Route: attachDisk, Times: 2, Effect: faults.Effect{Errored: true, ID: "FAILED_PRECONDITION"}})
			var all sync.WaitGroup
			for n, id := range ids {
				machine := []string{machine1, machine2}[n%2]
				all.Go(func() {
					if _, err := c.Attach(t.Context(), id, cloud.NodeID(machine)); err != nil {
						t.Error(err)
					}
					at(t, folder, id, machine)
					for _, op := range folder.Running() {
						if op.Disk == string(id) {
							t.Errorf("Attach answered while %+v", op)
						}
					}
					if err := c.Detach(t.Context(), id, cloud.NodeID(machine)); err != nil {
						t.Error(err)
					}
					at(t, folder, id, "")
				})
			}
			all.Wait()
		}
	})
}

// A1 and E3: a cloud that shows a change when half of its operation is over is not believed either, whenever it was that
// this was looked for: an attach or detach that fails in the end never counts as one that has succeeded.
func TestAChangeThatShowsHalfwayIsNotBelieved(t *testing.T) {
	for route, fails := range map[string]bool{attachDisk: true, detachDisk: false} {
		t.Run(route, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				folder := start(t, emulator.Options{
					Durations: emulator.Each(clock.Fixed(4 * time.Second)), Rules: emulator.Rules{ChangeHalfway: true, ParallelOperations: true},
				})
				c := open(t, folder, func(cfg *yandex.Config) { cfg.Usual = nil })
				ids, nodes := []cloud.VolumeID{volume(t, c, "a").ID, volume(t, c, "b").ID}, []cloud.NodeID{node1, node2}
				attach := func(n int) error { _, err := c.Attach(t.Context(), ids[n], nodes[n]); return err }
				detach := func(n int) error { return c.Detach(t.Context(), ids[n], nodes[n]) }
				both := func(call func(n int) error) (failed int) {
					var calls sync.WaitGroup
					var mu sync.Mutex
					for n := range ids {
						calls.Go(func() {
							err := call(n)
							for _, op := range folder.Running() {
								if err == nil && op.Disk == string(ids[n]) {
									t.Errorf("answered while %+v", op)
								}
							}
							mu.Lock()
							defer mu.Unlock()
							if err != nil {
								failed++
							}
						})
					}
					calls.Wait()
					return failed
				}
				for range 4 { // ordinary use, in which it is learnt how the cloud behaves
					if both(attach)+both(detach) > 0 {
						t.Fatal("a change failed")
					}
				}
				if !fails && both(attach) > 0 {
					t.Fatal("an attach failed")
				}
				time.Sleep(time.Minute)
				volume(t, c, "young") // so that lists prove how young they are
				folder.Arm(emulator.Fault{Route: route, Times: 2, Effect: faults.Effect{Errored: true, ID: "INTERNAL", Takes: clock.Fixed(20 * time.Second)}})
				if fails {
					both(attach)
				} else {
					both(detach)
				}
			})
		})
	}
}
