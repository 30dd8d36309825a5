package yandex

import (
	"context"
	"fmt"
	"net/http"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// Relocate moves a disk that is free to another zone. Its id, its data and its snapshots stay.
func (s diskService) Relocate(ctx context.Context, ask *compute.RelocateDiskRequest) (*operationpb.Operation, error) {
	c := s.c
	return c.change(ctx, func() (*job, *refusal) {
		d, why := diskShelf.existing(c, ask.GetDiskId(), statusReady)
		if why == nil {
			why = c.mayRelocate(d, ask)
		}
		if why != nil {
			return nil, why
		}
		zone, group := ask.GetDestinationZoneId(), ask.GetDiskPlacementPolicy().GetPlacementGroupId()
		move := func() disk {
			return c.changeDisk(d.ID, func(now *disk) { now.Zone, now.PlacementGroup = zone, group })
		}
		early := c.rules.ChangeOnAccept
		return &job{
			kind: kindRelocate, description: "Relocate disk", disk: d.ID, name: d.Name, lasts: c.lasts.Relocate, claims: []string{d.ID},
			metadata: &compute.RelocateDiskMetadata{DiskId: d.ID, SourceZoneId: d.Zone, DestinationZoneId: zone},
			accept: func() error {
				if early {
					move()
				}
				return nil
			},
			early:  func() { move() },
			finish: func() proto.Message { return c.showDisk(move()) },
			fail: func() {
				c.changeDisk(d.ID, func(now *disk) { now.Zone, now.PlacementGroup = d.Zone, d.PlacementGroup })
			},
		}, nil
	})
}

// mayRelocate says why a disk cannot be moved as it is asked for.
func (c *Cloud) mayRelocate(d disk, ask *compute.RelocateDiskRequest) *refusal {
	moved := d.Disk
	moved.Zone, moved.PlacementGroup = ask.GetDestinationZoneId(), ask.GetDiskPlacementPolicy().GetPlacementGroupId()
	if why := checkID("destination_zone_id", moved.Zone); why != nil {
		return why
	}
	switch {
	case d.Instance != "":
		why := attachedToInstance.with(d.ID)
		return &why
	case d.Zone == moved.Zone:
		return bad("destination_zone_id", "Disk is already in zone %s", d.Zone)
	case d.PlacementGroup != "" && moved.PlacementGroup == "":
		return bad("disk_placement_policy", "Field is required for a disk with a placement policy")
	}
	return first(c.checkPlace(moved.Zone, moved.Type), c.checkPlacement(&moved))
}

// RelocateInstance moves an instance, with the disk that it boots from, to another zone, as if it had been stopped for that. It has no
// other disks then.
func (c *Cloud) RelocateInstance(id, zone string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := c.now.instances[id]
	if _, known := c.opts.Zones[zone]; !known || !found {
		return fmt.Errorf("there is no instance %q or no zone %q", id, zone)
	}
	at := c.now.attachedTo(id)
	if len(at) > 1 {
		return fmt.Errorf("instance %s has %d disks, want none but the one that it boots from", id, len(at))
	}
	i.Zone = zone
	c.putInstance(i)
	for _, boot := range at {
		c.changeDisk(boot.ID, func(d *disk) { d.Zone = zone })
	}
	return nil
}

// relocateInstance is RelocateInstance for the owner's side.
func (c *Cloud) relocateInstance(body []byte, r *http.Request) (any, error) {
	var ask struct {
		Zone string `json:"zone"`
	}
	if err := account.ReadJSON(body, &ask); err != nil {
		return nil, err
	}
	id := r.PathValue("instance")
	if err := c.RelocateInstance(id, ask.Zone); err != nil {
		return nil, err
	}
	moved, _ := c.Instance(id)
	return moved, nil
}
