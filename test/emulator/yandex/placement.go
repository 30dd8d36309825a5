package yandex

import (
	"cmp"
	"context"
	"slices"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
)

// PlacementGroup is a placement group of non-replicated disks.
type PlacementGroup struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
	// Partitions is how many the group has; 0: its disks are spread.
	Partitions int64 `json:"partitions"`
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

// AddSchedule adds a snapshot schedule, which makes no snapshots, and returns its id.
func (c *Cloud) AddSchedule() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.newID(snapshotPrefix, "schedule", "")
	c.schedules[id] = true
	return id
}

// checkPlacement checks the placement group and the snapshot schedules of a new disk, and chooses its partition.
func (c *Cloud) checkPlacement(d *Disk) *refusal {
	for _, id := range d.Schedules {
		if !c.schedules[id] {
			why := notFound.with("Snapshot schedule", id)
			return &why
		}
	}
	if d.PlacementGroup == "" {
		if d.Partition != 0 {
			return bad("disk_placement_policy", "A partition without a placement group")
		}
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
	case d.Partition < 0 || d.Partition > group.Partitions:
		return bad("disk_placement_policy.placement_group_partition", "Placement group %s has %d partitions", group.ID, group.Partitions)
	case d.Partition == 0:
		d.Partition = min(1, group.Partitions) // no public source says that the cloud chooses one, or that it shows it
	}
	return nil
}

func (d Disk) policy() *compute.DiskPlacementPolicy {
	if d.PlacementGroup == "" {
		return nil
	}
	return &compute.DiskPlacementPolicy{PlacementGroupId: d.PlacementGroup, PlacementGroupPartition: d.Partition}
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
	shown := &compute.DiskPlacementGroup{Id: group.ID, FolderId: c.Folder, ZoneId: group.Zone, Status: compute.DiskPlacementGroup_READY}
	if group.Partitions > 0 {
		shown.PlacementStrategy = &compute.DiskPlacementGroup_PartitionPlacementStrategy{
			PartitionPlacementStrategy: &compute.DiskPartitionPlacementStrategy{Partitions: group.Partitions},
		}
	} else {
		shown.PlacementStrategy = &compute.DiskPlacementGroup_SpreadPlacementStrategy{
			SpreadPlacementStrategy: &compute.DiskSpreadPlacementStrategy{},
		}
	}
	return shown, nil
}

// ListSnapshotSchedules shows the schedules of a disk, all on one page.
func (s diskService) ListSnapshotSchedules(_ context.Context, ask *compute.ListDiskSnapshotSchedulesRequest) (*compute.ListDiskSnapshotSchedulesResponse, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	d, why := diskShelf.find(&c.now, ask.GetDiskId())
	if why != nil {
		return nil, c.refuse(*why)
	}
	list := &compute.ListDiskSnapshotSchedulesResponse{}
	for _, id := range slices.Sorted(slices.Values(d.Schedules)) {
		list.SnapshotSchedules = append(list.SnapshotSchedules, &compute.SnapshotSchedule{Id: id, FolderId: c.Folder})
	}
	return list, nil
}
