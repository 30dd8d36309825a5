package yandex_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// The routes of the changes.
const (
	createDisk = "DiskService/Create"
	updateDisk = "DiskService/Update"
	deleteDisk = "DiskService/Delete"
	attachDisk = "InstanceService/AttachDisk"
	detachDisk = "InstanceService/DetachDisk"
)

// stack is the backend as the program runs it.
func stack(c cloud.Cloud) cloud.Cloud {
	return middleware.Stack(c, wait.Backoff{Tries: 4, First: time.Millisecond, Max: 5 * time.Millisecond})
}

func request(name string) cloud.CreateVolumeRequest {
	return cloud.CreateVolumeRequest{Name: name, Size: cloud.GiB, Zones: []string{emulator.DefaultZone}}
}

func volume(t *testing.T, c cloud.Cloud, name string) cloud.Volume {
	t.Helper()
	return create(t, c, request(name))
}

var (
	must, want, until            = cloudtest.Must, cloudtest.Want, cloudtest.Until
	create, takeSnapshot, attach = cloudtest.CreateVolume, cloudtest.CreateSnapshot, cloudtest.AttachTo
)

// simulated runs a test in a time of its own. It ends when nothing is left of the connections: sleeping takes no
// real time there.
func simulated(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// at fails the test unless the folder shows the disk at exactly this machine ("": at none).
func at(t *testing.T, folder *emulator.Cloud, id cloud.VolumeID, machine string) {
	t.Helper()
	d, found := folder.Disk(string(id))
	if !found || d.Instance != machine {
		t.Errorf("disk %s is at %q (exists: %v), want %q", id, d.Instance, found, machine)
	}
}

// left fails the test unless there are so many disks.
func left(t *testing.T, folder *emulator.Cloud, disks int) {
	t.Helper()
	if all := folder.Disks(); len(all) != disks {
		t.Errorf("there are %d disks, want %d: %+v", len(all), disks, all)
	}
}

// A8: an operation that the cloud gives up has changed nothing: the call says so in the cloud's words, and its repeat is
// carried out.
func TestAFailedOperationIsToldApart(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(5 * time.Millisecond)), Rules: emulator.Rules{Rollback: clock.Fixed(time.Second)}})
		c := stack(open(t, folder))
		fail := func(route, code string) {
			folder.Arm(emulator.Fault{Route: route, Times: 1, Effect: faults.Effect{Errored: true, ID: code, Message: "the rack burns"}})
		}
		fail(createDisk, "RESOURCE_EXHAUSTED")
		_, err := c.CreateVolume(t.Context(), request("a"))
		want(t, err, fault.Exhausted, "the rack burns")
		left(t, folder, 0)
		vol := volume(t, c, "a") // under a key that follows from the failed one
		fail(attachDisk, "FAILED_PRECONDITION")
		_, err = c.Attach(t.Context(), vol.ID, node1)
		want(t, err, fault.Unavailable, "the rack burns") // the attacher repeats it
		attach(t, c, vol.ID, node1)
		at(t, folder, vol.ID, machine1)
		fail(updateDisk, "INTERNAL")
		exp, err := c.ExpandVolume(t.Context(), vol.ID, 2*cloud.GiB)
		if err != nil || exp.Size != 2*cloud.GiB {
			t.Errorf("ExpandVolume = %+v, %v", exp, err)
		}
		fail(detachDisk, "FAILED_PRECONDITION")
		must(t, c.Detach(t.Context(), vol.ID, node1))
		at(t, folder, vol.ID, "")
		fail(deleteDisk, "INTERNAL")
		must(t, c.DeleteVolume(t.Context(), vol.ID))
		left(t, folder, 0)
	})
}

// An instance that is booting fails the operation, and the answer says so; the repeat succeeds when it is up.
func TestABootingInstanceIsADelay(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(5 * time.Millisecond))})
		c := open(t, folder)
		vol := volume(t, c, "a")
		folder.SetStatus(machine1, "STARTING")
		_, err := c.Attach(t.Context(), vol.ID, node1)
		want(t, err, fault.Unavailable, "guest is not ready")
		at(t, folder, vol.ID, "")
		folder.SetStatus(machine1, "RUNNING")
		attach(t, c, vol.ID, node1)
		folder.SetStatus(machine1, "UPDATING")
		want(t, c.Detach(t.Context(), vol.ID, node1), fault.Unavailable, "the instance is UPDATING")
		folder.SetStatus(machine1, "ERROR")
		want(t, c.Detach(t.Context(), vol.ID, node1), fault.Unavailable, "the instance is ERROR; stop it")
		folder.SetStatus(machine1, "RUNNING")
		must(t, c.Detach(t.Context(), vol.ID, node1))
		at(t, folder, vol.ID, "")
	})
}

// A disk and a machine of two zones never come together, and the error names both.
func TestAZoneMismatchIsNamed(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := open(t, folder)
	req := request("a")
	req.Zones = []string{"ru-central1-b"}
	vol := create(t, c, req)
	_, err := c.Attach(t.Context(), vol.ID, node1)
	want(t, err, fault.Precondition, "ru-central1-b", "ru-central1-a", machine1)
}

// A7: a machine that is full is Exhausted, so that the pod goes elsewhere; the disk stays free.
func TestAFullMachineIsExhausted(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := open(t, folder)
	for n := range 7 { // beside the disk that it boots from
		attach(t, c, volume(t, c, fmt.Sprintf("v%d", n)).ID, node1)
	}
	last := volume(t, c, "last")
	_, err := c.Attach(t.Context(), last.ID, node1)
	want(t, err, fault.Exhausted, "no free slot", "7 are taken", "--max-volumes")
	at(t, folder, last.ID, "")
}

// P1: as many operations as the folder can have, of whomever, delay and never fail; a real quota is an answer.
func TestActiveOperationsAreADelayAndQuotasAreNot(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Rules: emulator.Rules{ActiveOperations: 1, DiskLimit: 2, CapacityLimit: 3 << 30}, Durations: emulator.Each(clock.Fixed(time.Second))})
		mine, other := open(t, folder), open(t, folder, inCluster("two"))
		done := make(chan error, 1)
		go func() { _, err := other.CreateVolume(t.Context(), request("theirs")); done <- err }()
		until(t, "a change is under way", func() bool { return len(folder.Running()) > 0 })
		vol := create(t, mine, request("mine"))
		must(t, <-done)
		_, err := mine.CreateVolume(t.Context(), request("one too many"))
		want(t, err, fault.Exhausted, "Quota", "count")
		left(t, folder, 2)
		_, err = mine.ExpandVolume(t.Context(), vol.ID, 3*cloud.GiB)
		want(t, err, fault.Exhausted, "Quota", "size")
		if exp, err := mine.ExpandVolume(t.Context(), vol.ID, 2*cloud.GiB); err != nil || exp.Size != 2*cloud.GiB {
			t.Errorf("a growth within the quota = %+v, %v", exp, err)
		}
		must(t, mine.DeleteVolume(t.Context(), vol.ID))
	})
}

// A change of labels is sent soon after the read of them, and its answer may take its time.
func TestLabelsAreChangedHoweverLateTheAnswerIs(t *testing.T) {
	for name, effect := range map[string]faults.Effect{
		"the change takes long": {Delay: clock.Fixed(10 * time.Second)}, "the answer does": {DelayAnswer: clock.Fixed(10 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				folder := start(t, emulator.Options{})
				c := open(t, folder)
				vol := volume(t, c, "a")
				folder.Arm(emulator.Fault{Effect: effect})
				must(t, c.ModifyVolume(t.Context(), vol.ID, []cloud.Tag{{Key: "team", Value: "b"}}))
			})
		})
	}
}
