package yandex_test

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

const wholeDrives = "network-ssd-nonreplicated"

// placed is a request for a disk in a placement group, in any zone.
func placed(name, group string) cloud.CreateVolumeRequest {
	req := request(name)
	req.Zones = []string{emulator.DefaultZone, "ru-central1-b"}
	req.Parameters = []cloud.Parameter{{Name: "placementGroupId", Value: group}, {Name: "type", Value: wholeDrives}}
	return req
}

// C7: a group has a zone, so its disks are made there. What of a class does not exist is the class's mistake.
func TestADiskIsMadeInItsPlacementGroup(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := stack(open(t, folder))
	group := folder.AddPlacementGroup(emulator.PlacementGroup{Zone: "ru-central1-b"})
	vol := create(t, c, placed("a", group))
	if d, _ := folder.Disk(string(vol.ID)); d.PlacementGroup != group || d.Zone != "ru-central1-b" {
		t.Errorf("the disk is %+v, want it in %s", d, group)
	}
	for name, tc := range map[string]struct {
		req  cloud.CreateVolumeRequest
		kind fault.Kind
	}{
		"the same again":           {placed("a", group), fault.None},
		"a group that is not here": {placed("b", "fhmnogroup"), fault.InvalidArgument},
	} {
		again, err := c.CreateVolume(t.Context(), tc.req)
		if fault.Of(err) != tc.kind || err == nil && again.ID != vol.ID {
			t.Errorf("%s: CreateVolume = %s, %v, want %q", name, again.ID, err, tc.kind)
		}
	}
	elsewhere := placed("b", group)
	elsewhere.Zones = elsewhere.Zones[:1]
	_, err := c.CreateVolume(t.Context(), elsewhere)
	want(t, err, fault.Exhausted)
	left(t, folder, 1)
}
