package yandex_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// A disk that the vendor's driver has attached has another name, and one that is attached for reading only is refused.
func TestADiskThatAnotherDriverHasAttached(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := open(t, folder)
	id := attached(t, c)
	folder.ChangeDisk(string(id), func(d *emulator.Disk) { d.Device = "csi-25174384" })
	dev, err := c.Attach(t.Context(), id, node1)
	if err != nil || dev != (cloud.Device{Name: "virtio-csi-25174384", Serial: "csi-25174384"}) {
		t.Errorf("Attach where the vendor's driver has attached it = %+v, %v", dev, err)
	}
	folder.ChangeDisk(string(id), func(d *emulator.Disk) { d.ReadOnly = true })
	_, err = c.Attach(t.Context(), id, node1)
	want(t, err, fault.Precondition, "reading only")
}

// A machine that somebody else is changing delays an attach and does not fail it, whatever the code.
func TestAForeignOperationIsADelay(t *testing.T) {
	for _, code := range []string{"FAILED_PRECONDITION", "ABORTED"} {
		t.Run(code, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				folder := start(t, emulator.Options{Rules: emulator.Rules{Codes: map[string]string{"busy_instance": code}}})
				mine, other := open(t, folder), open(t, folder, inCluster("two"))
				vol, theirs := volume(t, mine, "a"), volume(t, other, "b")
				folder.Arm(emulator.Fault{Route: attachDisk, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(100 * time.Millisecond)}})
				done := make(chan error, 1)
				go func() { _, err := other.Attach(t.Context(), theirs.ID, node1); done <- err }()
				until(t, "a change is under way", func() bool { return len(folder.Running()) > 0 })
				attach(t, mine, vol.ID, node1)
				must(t, <-done)
				at(t, folder, vol.ID, machine1)
				at(t, folder, theirs.ID, machine1)
			})
		})
	}
}

// Many attaches to one machine queue here instead of colliding there, and so do more creates than the folder can
// have operations: no refusal is ever seen.
func TestChangesQueue(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(50 * time.Millisecond))})
		c := open(t, folder)
		ids := make([]cloud.VolumeID, 40)
		cloudtest.AtOnce(t, len(ids), func(n int) error {
			vol, err := c.CreateVolume(t.Context(), request(fmt.Sprintf("v%d", n)))
			ids[n] = vol.ID
			return err
		})
		cloudtest.AtOnce(t, 6, func(n int) error {
			_, err := c.Attach(t.Context(), ids[n], []cloud.NodeID{node1, node2}[n%2])
			return err
		})
		stats := folder.Stats()
		if most := stats.MaxParallel; most[folder.Folder] > 15 || most[machine1] != 1 || most[machine2] != 1 || stats.Writes != 46 {
			t.Errorf("%d writes for 46 changes, at most %v at once", stats.Writes, most)
		}
	})
}

// A1: where the records of a disk do not tell of its attaches, which are the machine's, a detach from wherever it is
// waits for one that this controller has begun.
func TestADetachFromAnywhereWaitsForAnAttachOfTheMachine(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Rules: emulator.Rules{OperationsApart: true}})
		c := open(t, folder)
		vol := volume(t, c, "a")
		folder.Arm(emulator.Fault{Route: attachDisk, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(time.Minute)}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := c.Attach(ctx, vol.ID, node1)
		want(t, err, fault.Uncertain)
		must(t, c.Detach(t.Context(), vol.ID, ""))
		if running := folder.Running(); len(running) > 0 {
			t.Errorf("Detach answered while %+v", running)
		}
		at(t, folder, vol.ID, "")
	})
}
