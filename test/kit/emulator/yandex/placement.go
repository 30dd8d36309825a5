package yandex

import (
	"cmp"
	"context"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
)

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
		why := notFound.with("Disk placement group", d.PlacementGroup)
		return &why
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
