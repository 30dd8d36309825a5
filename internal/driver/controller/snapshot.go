package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateSnapshot creates one snapshot per name, or returns the one that an earlier call created.
func (s *Service) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if !s.caps.Snapshots {
		return nil, s.refuseSnapshot(ctx)
	}
	if err := driver.CheckName("name", req.GetName()); err != nil {
		return nil, err
	}
	if err := driver.CheckVolumeID("source_volume_id", req.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	tags, params, err := s.parseSnapshotParameters(req.GetParameters())
	if err != nil {
		return nil, err
	}
	release, err := s.locks.Acquire(driver.OfSnapshotName(req.GetName()))
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.checkSnapshotPlace(ctx, req); err != nil {
		return nil, err
	}
	snap, err := s.cloud.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{
		Name:       req.GetName(),
		Volume:     s.volumeID(req.GetSourceVolumeId()),
		Parameters: params,
		Tags:       mergeTags(s.tags, tags),
	})
	if fault.Of(err) == fault.Exhausted {
		// external-snapshotter treats ResourceExhausted as a snapshot that may still be under way: it lets the VolumeSnapshot be deleted
		// only after a repeat has taken the snapshot.
		return nil, fmt.Errorf("%w: %w", fault.Precondition, err)
	}
	if err != nil {
		return nil, err
	}
	answer := s.snapshot(snap)
	answer.SourceVolumeId = req.GetSourceVolumeId()
	return &csi.CreateSnapshotResponse{Snapshot: answer}, nil
}

// refuseSnapshot returns the refusal of a backend without snapshots, which has the reason and an alternative.
func (s *Service) refuseSnapshot(ctx context.Context) error {
	_, err := s.cloud.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{})
	if !errors.Is(err, fault.Unsupported) {
		return need(false, "CreateSnapshot")
	}
	return fmt.Errorf("CreateSnapshot: %w", err)
}

// checkSnapshotPlace refuses a snapshot that could not be restored in the places of the request: a snapshot is bound to the place
// of its volume, which has to be read.
func (s *Service) checkSnapshotPlace(ctx context.Context, req *csi.CreateSnapshotRequest) error {
	const field = "accessibility_requirements"
	want := req.GetAccessibilityRequirements()
	if want != nil && !s.caps.SnapshotZones {
		return fmt.Errorf("%s: snapshots of this cloud can be restored everywhere: %w", field, fault.InvalidArgument)
	}
	zones, err := zonesFor(s.names, want)
	if err != nil || len(zones) == 0 {
		return err
	}
	vol, err := s.cloud.GetVolume(ctx, s.volumeID(req.GetSourceVolumeId()))
	switch {
	case err != nil && goneForSure(err):
		return nil // CreateSnapshot reports whether it is gone or elsewhere
	case err != nil:
		// An earlier call may have taken the snapshot, and external-snapshotter forgets it after a final error.
		return fmt.Errorf("%s: read the place of the volume: %w: %w", field, fault.Uncertain, err)
	case !slices.Contains(zones, vol.Zone):
		return fmt.Errorf("%s: snapshots of volume %s can be restored only in %s, asked for is %s: %w",
			field, vol.ID, vol.Zone, strings.Join(zones, " or "), fault.SourceElsewhere)
	}
	return nil
}

// DeleteSnapshot deletes the snapshot with exactly this id. One that does not exist is no error.
func (s *Service) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := need(s.caps.Snapshots, "DeleteSnapshot"); err != nil {
		return nil, err
	}
	if err := driver.CheckSnapshotID("snapshot_id", req.GetSnapshotId()); err != nil {
		return nil, err
	}
	release, err := s.locks.Acquire(driver.OfSnapshot(req.GetSnapshotId()))
	if err != nil {
		return nil, err
	}
	defer release()
	id := cloud.SnapshotID(req.GetSnapshotId())
	if err := s.cloud.DeleteSnapshot(ctx, id); err != nil && !goneForSure(err) {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// GetSnapshot returns the current state of a snapshot.
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
	return &csi.GetSnapshotResponse{Snapshot: s.snapshot(snap)}, nil
}

// snapshot returns a snapshot in CSI's form.
func (s *Service) snapshot(snap cloud.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SizeBytes:          int64(snap.Size),
		SnapshotId:         string(snap.ID),
		SourceVolumeId:     string(snap.Volume),
		CreationTime:       timestamppb.New(snap.Created),
		ReadyToUse:         snap.Ready,
		AccessibleTopology: s.topology(snap.Zone),
	}
}
