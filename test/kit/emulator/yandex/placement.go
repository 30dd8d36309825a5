package yandex

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// This file is where a disk can be: the types, sizes and zones that there are, placement groups, and moves to another zone.

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

// diskType has the sizes of a type: steps of so many bytes, which also is the least.
type diskType struct {
	description string
	step        int64
	// network disks can be the larger, the larger their blocks are.
	network bool
}

const (
	usualType      = "network-hdd"
	smallestDisk   = 4 * mib
	largestDisk    = 26 * tib
	largestUpdate  = 4 * tib
	usualBlock     = 4 * kib
	largestBlock   = 128 * kib
	blocksPerDisk  = 8 * tib / (4 * kib)
	replicatedStep = 93 * gib
)

var diskTypes = map[string]diskType{
	"network-hdd":               {"Network storage with HDD backend", smallestDisk, true},
	"network-ssd":               {"Network storage with SSD backend", smallestDisk, true},
	"network-ssd-nonreplicated": {"Non-replicated network storage with SSD backend", replicatedStep, false},
	"network-ssd-io-m3":         {"Fast network storage with three replicas", replicatedStep, false},
}

// checkSize checks a disk's size, which can be at most as large as limit says.
func checkSize(typeID string, size, blockSize, limit int64) *refusal {
	kind, known := diskTypes[typeID]
	switch {
	case !known:
		return nil // checkPlace refuses it
	case size < smallestDisk || size > limit:
		return bad("size", "Value must be between %d and %d", int64(smallestDisk), limit)
	case size%kind.step != 0:
		return bad("size", "Disk size must be a multiple of %d for %s", kind.step, typeID)
	case kind.network && size > blockSize*blocksPerDisk:
		return bad("size", "Disk with block size %d can have at most %d bytes", blockSize, blockSize*blocksPerDisk)
	}
	return nil
}

func checkBlockSize(size int64) *refusal {
	if size < usualBlock || size > largestBlock || size&(size-1) != 0 {
		return bad("block_size", "Value must be a power of two between %d and %d", usualBlock, largestBlock)
	}
	return nil
}

// checkPlace checks that there can be a disk of a type in a zone.
func (c *Cloud) checkPlace(zone, typeID string) *refusal {
	if why := checkID("zone_id", zone); why != nil {
		return why
	}
	place, known := c.opts.Zones[zone]
	_, knownType := diskTypes[typeID]
	switch {
	case !known:
		return bad("zone_id", "Unknown zone %s", zone)
	case !knownType:
		return bad("type_id", "Unknown disk type %s", typeID)
	case place.DiskTypes != nil && !slices.Contains(place.DiskTypes, typeID):
		return bad("type_id", "Disk type %s is not available in zone %s", typeID, zone)
	}
	return nil
}

type diskTypeService struct {
	compute.UnimplementedDiskTypeServiceServer
	c *Cloud
}

// Get shows a disk type.
func (s diskTypeService) Get(_ context.Context, ask *compute.GetDiskTypeRequest) (*compute.DiskType, error) {
	if _, known := diskTypes[ask.GetDiskTypeId()]; !known {
		return nil, s.c.refuse(notFound.with("Disk type", ask.GetDiskTypeId()))
	}
	return s.c.showDiskType(ask.GetDiskTypeId()), nil
}

func (c *Cloud) showDiskType(id string) *compute.DiskType {
	shown := &compute.DiskType{Id: id, Description: diskTypes[id].description}
	for _, zone := range slices.Sorted(maps.Keys(c.opts.Zones)) {
		if types := c.opts.Zones[zone].DiskTypes; types == nil || slices.Contains(types, id) {
			shown.ZoneIds = append(shown.ZoneIds, zone)
		}
	}
	return shown
}

// PlacementGroup is a placement group of non-replicated disks.
type PlacementGroup struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
}

// AddPlacementGroup adds a placement group and returns its id.
func (c *Cloud) AddPlacementGroup(g PlacementGroup) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.Zone = cmp.Or(g.Zone, c.opts.Zone)
	g.ID = cmp.Or(g.ID, c.newID(zonePrefix(g.Zone), "placement group", ""))
	c.groups[g.ID] = g
	return g.ID
}

// checkPlacement checks the placement group of a new disk.
func (c *Cloud) checkPlacement(d *Disk) *refusal {
	if d.PlacementGroup == "" {
		return nil
	}
	const grouped = "network-ssd-nonreplicated"
	group, found := c.groups[d.PlacementGroup]
	switch {
	case !found:
		return notFound.with("Disk placement group", d.PlacementGroup)
	case d.Type != grouped:
		return bad("disk_placement_policy", "Disks of the type %s have no placement groups", d.Type)
	case d.Zone != group.Zone:
		return bad("disk_placement_policy", "Placement group %s is in zone %s", group.ID, group.Zone)
	}
	return nil
}

func (d Disk) policy() *compute.DiskPlacementPolicy {
	if d.PlacementGroup == "" {
		return nil
	}
	return &compute.DiskPlacementPolicy{PlacementGroupId: d.PlacementGroup}
}

type placementGroupService struct {
	compute.UnimplementedDiskPlacementGroupServiceServer
	c *Cloud
}

// Get shows a placement group.
func (s placementGroupService) Get(_ context.Context, ask *compute.GetDiskPlacementGroupRequest) (*compute.DiskPlacementGroup, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	group, found := c.groups[ask.GetDiskPlacementGroupId()]
	if !found {
		return nil, c.refuse(notFound.with("Disk placement group", ask.GetDiskPlacementGroupId()))
	}
	return &compute.DiskPlacementGroup{
		Id: group.ID, FolderId: c.Folder, ZoneId: group.Zone, Status: compute.DiskPlacementGroup_READY,
		PlacementStrategy: &compute.DiskPlacementGroup_SpreadPlacementStrategy{SpreadPlacementStrategy: &compute.DiskSpreadPlacementStrategy{}},
	}, nil
}

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
		show := func() { move() }
		return &job{
			kind: kindRelocate, description: "Relocate disk", disk: d.ID, name: d.Name, lasts: c.lasts.Relocate, claims: []string{d.ID},
			metadata: &compute.RelocateDiskMetadata{DiskId: d.ID, SourceZoneId: d.Zone, DestinationZoneId: zone},
			accept:   c.onAccept(show),
			early:    show,
			finish:   func() proto.Message { return c.showDisk(move()) },
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
		return attachedToInstance.with(d.ID)
	case d.Zone == moved.Zone:
		return bad("destination_zone_id", "Disk is already in zone %s", d.Zone)
	case d.PlacementGroup != "" && moved.PlacementGroup == "":
		return bad("disk_placement_policy", "Field is required for a disk with a placement policy")
	}
	return cmp.Or(c.checkPlace(moved.Zone, moved.Type), c.checkPlacement(&moved))
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
