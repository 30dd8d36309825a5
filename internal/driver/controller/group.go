package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Groups implements csi.GroupControllerServer. It is served only where Features.Groups says so.
type Groups struct {
	csi.UnimplementedGroupControllerServer

	service *Service
}

// Groups returns the service for groups of volumes over the same cloud.
func (s *Service) Groups() *Groups { return &Groups{service: s} }

// GroupControllerGetCapabilities lists the one thing that there is.
func (g *Groups) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

// CreateVolumeGroupSnapshot snapshots all volumes at one instant, or finds the group that an earlier
// call of that name made.
func (g *Groups) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	const field = "source_volume_ids"
	if err := driver.CheckName("name", req.GetName()); err != nil {
		return nil, err
	}
	if len(req.GetSourceVolumeIds()) == 0 {
		return nil, fmt.Errorf("%s: missing: %w", field, fault.InvalidArgument)
	}
	var volumes []cloud.VolumeID
	for i, id := range req.GetSourceVolumeIds() {
		at := fmt.Sprintf("%s[%d]", field, i)
		if err := driver.CheckVolumeID(at, id); err != nil {
			return nil, err
		}
		if slices.Contains(volumes, cloud.VolumeID(id)) {
			return nil, fmt.Errorf("%s: names a volume again: %w", at, fault.InvalidArgument)
		}
		volumes = append(volumes, cloud.VolumeID(id))
	}
	tags, err := parseSnapshotParameters(req.GetParameters(), groupMetadata)
	if err != nil {
		return nil, err
	}
	made, err := g.service.cloud.CreateSnapshots(ctx, cloud.CreateSnapshotsRequest{
		Name: req.GetName(), Volumes: volumes, Group: true, Tags: mergeTags(g.service.tags, tags),
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: g.group(made)}, nil
}

// DeleteVolumeGroupSnapshot removes all snapshots of the group. One that is interrupted is finished by
// a repeat; a group that does not exist is no error.
func (g *Groups) DeleteVolumeGroupSnapshot(ctx context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if _, err := g.members(ctx, req); err != nil {
		return nil, err
	}
	// Those that were not found are deleted too: only the backend knows which of them is not gone but
	// in another place.
	for _, id := range req.GetSnapshotIds() {
		if err := g.service.cloud.DeleteSnapshot(ctx, cloud.SnapshotID(id)); err != nil && !goneForSure(err) {
			return nil, fmt.Errorf("delete group %s: %w", req.GetGroupSnapshotId(), err)
		}
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot returns the present state of a group that is whole.
func (g *Groups) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	members, err := g.members(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(members) == 0 {
		return nil, fmt.Errorf("group %s: %w", req.GetGroupSnapshotId(), fault.NotFound)
	}
	for _, id := range req.GetSnapshotIds() {
		if !slices.ContainsFunc(members, isSnapshot(id)) {
			return nil, fmt.Errorf("group %s is not whole: snapshot %s: %w", req.GetGroupSnapshotId(), id, fault.NotFound)
		}
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: g.group(members)}, nil
}

// members returns the snapshots of the group that exist, in the order of the request, and refuses a
// request whose snapshot_ids lack one of them or name one that is not of this group. All snapshots
// are looked through, because the ids alone cannot show that one is missing among them: an OK to
// delete half a group would leave the other half for ever.
func (g *Groups) members(ctx context.Context, req interface {
	GetGroupSnapshotId() string
	GetSnapshotIds() []string
}) ([]cloud.Snapshot, error) {
	const field = "snapshot_ids"
	if err := driver.CheckGroupID("group_snapshot_id", req.GetGroupSnapshotId()); err != nil {
		return nil, err
	}
	for i, id := range req.GetSnapshotIds() {
		at := fmt.Sprintf("%s[%d]", field, i)
		if err := driver.CheckSnapshotID(at, id); err != nil {
			return nil, err
		}
		if slices.Contains(req.GetSnapshotIds()[:i], id) {
			return nil, fmt.Errorf("%s: names a snapshot again: %w", at, fault.InvalidArgument)
		}
	}
	group := cloud.GroupID(req.GetGroupSnapshotId())
	all, err := g.snapshotsOf(ctx, group)
	if err != nil {
		return nil, err
	}
	for _, snap := range all {
		if !slices.Contains(req.GetSnapshotIds(), string(snap.ID)) {
			return nil, fmt.Errorf("%s: lacks %s, which is of group %s too: %w", field, snap.ID, group, fault.InvalidArgument)
		}
	}
	var members []cloud.Snapshot
	for _, id := range req.GetSnapshotIds() {
		if at := slices.IndexFunc(all, isSnapshot(id)); at >= 0 {
			members = append(members, all[at])
			continue
		}
		snap, err := g.service.cloud.GetSnapshot(ctx, cloud.SnapshotID(id))
		switch {
		case err == nil:
			return nil, fmt.Errorf("%s: %s is not of group %s: %w", field, snap.ID, group, fault.InvalidArgument)
		case !goneForSure(err):
			return nil, err
		}
	}
	return members, nil
}

// snapshotsOf looks through all snapshots for those of the group.
func (g *Groups) snapshotsOf(ctx context.Context, group cloud.GroupID) (found []cloud.Snapshot, err error) {
	for at := (cloud.Page{}); ; {
		list, err := g.service.cloud.ListSnapshots(ctx, "", at)
		if err != nil {
			return nil, fmt.Errorf("look for the snapshots of group %s: %w", group, err)
		}
		for _, snap := range list.Snapshots {
			if snap.Group == group {
				found = append(found, snap)
			}
		}
		if at.Token = list.Next; at.Token == "" {
			return found, nil
		}
	}
}

func isSnapshot(id string) func(cloud.Snapshot) bool {
	return func(s cloud.Snapshot) bool { return string(s.ID) == id }
}

// group describes snapshots of one group, at least one, in CSI's words.
func (g *Groups) group(members []cloud.Snapshot) *csi.VolumeGroupSnapshot {
	first := g.service.snapshot(members[0])
	answer := &csi.VolumeGroupSnapshot{
		GroupSnapshotId: first.GetGroupSnapshotId(), CreationTime: first.GetCreationTime(), ReadyToUse: true,
	}
	for _, m := range members {
		answer.Snapshots = append(answer.Snapshots, g.service.snapshot(m))
		answer.ReadyToUse = answer.ReadyToUse && m.Ready
	}
	return answer
}
