package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateSnapshot makes one snapshot per name, or finds the one that an earlier call made.
func (s *Service) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := need(s.caps.Snapshots, "CreateSnapshot"); err != nil {
		return nil, err
	}
	if err := driver.CheckName("name", req.GetName()); err != nil {
		return nil, err
	}
	if err := driver.CheckVolumeID("source_volume_id", req.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	if req.GetAccessibilityRequirements() != nil {
		return nil, fmt.Errorf("accessibility_requirements: not supported for snapshots: %w", fault.InvalidArgument)
	}
	tags, err := parseSnapshotParameters(req.GetParameters())
	if err != nil {
		return nil, err
	}
	made, err := s.cloud.CreateSnapshots(ctx, cloud.CreateSnapshotsRequest{
		Name:    req.GetName(),
		Volumes: []cloud.VolumeID{cloud.VolumeID(req.GetSourceVolumeId())},
		Tags:    mergeTags(s.tags, tags),
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshot(made[0])}, nil
}

// DeleteSnapshot removes the snapshot with exactly this id. One that does not exist is no error.
func (s *Service) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := need(s.caps.Snapshots, "DeleteSnapshot"); err != nil {
		return nil, err
	}
	if err := driver.CheckSnapshotID("snapshot_id", req.GetSnapshotId()); err != nil {
		return nil, err
	}
	if err := s.cloud.DeleteSnapshot(ctx, cloud.SnapshotID(req.GetSnapshotId())); err != nil && !goneForSure(err) {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// GetSnapshot returns the present state of a snapshot.
func (s *Service) GetSnapshot(ctx context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if err := need(s.caps.Snapshots, "GetSnapshot"); err != nil {
		return nil, err
	}
	if err := driver.CheckSnapshotID("snapshot_id", req.GetSnapshotId()); err != nil {
		return nil, err
	}
	snap, err := s.cloud.GetSnapshot(ctx, cloud.SnapshotID(req.GetSnapshotId()))
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: snapshot(snap)}, nil
}

func snapshot(s cloud.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SizeBytes:      int64(s.Size),
		SnapshotId:     string(s.ID),
		SourceVolumeId: string(s.Volume),
		CreationTime:   timestamppb.New(s.Created),
		ReadyToUse:     s.Ready,
	}
}
