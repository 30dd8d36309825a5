package yandex_test

import (
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
)

const wholeDrives = "network-ssd-nonreplicated"

// placed is a request for a disk in a placement group, in any zone.
func placed(name, group, partition string) cloud.CreateVolumeRequest {
	req := request(name)
	req.Zones = []string{emulator.DefaultZone, "ru-central1-b"}
	req.Parameters = []cloud.Parameter{
		{Name: "placementGroupId", Value: group}, {Name: "placementGroupPartition", Value: partition}, {Name: "type", Value: wholeDrives},
	}
	return req
}

// A group has a zone, so its disks are made there. What of a class does not exist is the class's mistake.
func TestADiskIsMadeInItsPlacementGroup(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := stack(open(t, folder))
	group := folder.AddPlacementGroup(emulator.PlacementGroup{Zone: "ru-central1-b", Partitions: 3})
	vol, err := c.CreateVolume(t.Context(), placed("a", group, "3"))
	must(t, err)
	if d, _ := folder.Disk(string(vol.ID)); d.PlacementGroup != group || d.Partition != 3 || d.Zone != "ru-central1-b" {
		t.Errorf("the disk is %+v, want it in partition 3 of %s", d, group)
	}
	for name, tc := range map[string]struct {
		req  cloud.CreateVolumeRequest
		kind fault.Kind
	}{
		"the same again":           {placed("a", group, "3"), fault.None},
		"another partition":        {placed("a", group, "2"), fault.Conflict},
		"a partition of no group":  {placed("b", group, "4"), fault.InvalidArgument},
		"a group that is not here": {placed("b", "fhmnogroup", "1"), fault.InvalidArgument},
	} {
		again, err := c.CreateVolume(t.Context(), tc.req)
		if fault.Of(err) != tc.kind || err == nil && again.ID != vol.ID {
			t.Errorf("%s: CreateVolume = %s, %v, want %q", name, again.ID, err, tc.kind)
		}
	}
	for range 2 { // the cloud chooses the partition, and the repeat names none either
		req := placed("any partition", group, "")
		req.Parameters = slices.Delete(req.Parameters, 1, 2)
		_, err = c.CreateVolume(t.Context(), req)
		must(t, err)
	}
	elsewhere := placed("b", group, "1")
	elsewhere.Zones = elsewhere.Zones[:1]
	_, err = c.CreateVolume(t.Context(), elsewhere)
	want(t, err, fault.Exhausted)
	left(t, folder, 2)
}

// A disk does not show its schedules, so a label does. A copy has those of its own class.
func TestADiskGetsItsSnapshotSchedules(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := stack(open(t, folder))
	first, second := folder.AddSchedule(), folder.AddSchedule()
	scheduled := func(name, ids string) cloud.CreateVolumeRequest {
		req := request(name)
		req.Parameters = []cloud.Parameter{{Name: "snapshotScheduleIds", Value: ids}}
		return req
	}
	folder.Arm(emulator.Fault{Route: createDisk, Times: 1, Effect: faults.Effect{Lost: faults.LostAfter}})
	vol, err := c.CreateVolume(t.Context(), scheduled("a", first+","+second)) // its answer is lost
	must(t, err)
	if d, _ := folder.Disk(string(vol.ID)); len(d.Schedules) != 2 {
		t.Errorf("the disk is %+v, want both schedules", d)
	}
	_, err = c.CreateVolume(t.Context(), scheduled("a", first))
	want(t, err, fault.Conflict)
	_, err = c.CreateVolume(t.Context(), scheduled("b", "fd8noschedule"))
	want(t, err, fault.InvalidArgument)
	copied := scheduled("copy", second)
	copied.Source.Volume = vol.ID
	made, err := c.CreateVolume(t.Context(), copied)
	must(t, err)
	if d, _ := folder.Disk(string(made.ID)); len(d.Schedules) != 1 || d.Schedules[0] != second {
		t.Errorf("the copy is %+v, want the schedule %s", d, second)
	}
	left(t, folder, 2)
}
