package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateVolume creates one volume per name, or returns the one that an earlier call created.
func (s *Service) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	want, params, err := s.createRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	release, err := s.locks.Acquire(driver.OfVolumeName(want.Name))
	if err != nil {
		return nil, err
	}
	defer release()
	made, err := s.cloud.CreateVolume(ctx, want)
	if err != nil {
		return nil, err
	}
	answer := s.volume(made)
	answer.ContentSource = req.GetVolumeContentSource() // as requested; not every cloud stores it
	content := driver.ContentBlank
	if !want.Source.Blank() {
		content = driver.ContentCopy
	}
	answer.VolumeContext = s.names.EncodeVolumeContext(driver.VolumeContext{
		DeviceName:    made.Device.Name,
		Serial:        made.Device.Serial,
		Size:          int64(made.Size),
		Content:       content,
		MkfsOptions:   params.mkfsOptions,
		FormatNonZero: params.formatNonZero,
		LUKS:          params.luks,
		Limits:        params.limits,
	})
	return &csi.CreateVolumeResponse{Volume: answer}, nil
}

// createRequest checks and translates a request. It makes all checks of the request alone before the only case that needs a read of
// the cloud.
func (s *Service) createRequest(ctx context.Context, req *csi.CreateVolumeRequest) (cloud.CreateVolumeRequest, volumeParameters, error) {
	none := cloud.CreateVolumeRequest{}
	if err := driver.CheckName("name", req.GetName()); err != nil {
		return none, volumeParameters{}, err
	}
	if err := driver.CheckCapabilities("volume_capabilities", req.GetVolumeCapabilities()); err != nil {
		return none, volumeParameters{}, err
	}
	mutable, err := s.parseMutableParameters(req.GetMutableParameters())
	if err != nil {
		return none, volumeParameters{}, err
	}
	params, err := s.parseVolumeParameters(req.GetParameters())
	if err != nil {
		return none, params, err
	}
	if err := params.checkFilesystem(req.GetVolumeCapabilities()); err != nil {
		return none, params, err
	}
	zones, err := zonesFor(s.names, req.GetAccessibilityRequirements())
	if err != nil {
		return none, params, err
	}
	source, err := s.source(req.GetVolumeContentSource())
	if err != nil {
		return none, params, err
	}
	if err := checkRange(req.GetCapacityRange()); err != nil {
		return none, params, err
	}
	preferred, err := s.defaultSize(ctx, req.GetCapacityRange(), source)
	if err != nil {
		return none, params, err
	}
	params.limits = mergeLimits(params.limits, mutable.limits)
	caps := s.caps
	caps.SmallestVolume = max(caps.SmallestVolume, params.smallest(req.GetVolumeCapabilities()))
	size, err := sizeWithin(req.GetCapacityRange(), preferred, caps)
	return cloud.CreateVolumeRequest{
		Name:       req.GetName(),
		Size:       size,
		Limit:      cloud.Bytes(req.GetCapacityRange().GetLimitBytes()),
		Zones:      zones,
		Source:     source,
		Parameters: params.backend,
		Tags:       mergeTags(mergeTags(s.tags, params.tags), mutable.tags),
	}, params, err
}

// source returns a content source in the cloud's form. It refuses one that this cloud cannot serve: if it were ignored, the volume
// would be empty instead of having the data (failure C4 of the catalogue).
func (s *Service) source(from *csi.VolumeContentSource) (cloud.Source, error) {
	const field = "volume_content_source"
	switch {
	case from == nil:
		return cloud.Source{}, nil
	case from.GetSnapshot() != nil && !s.caps.Snapshots:
		return cloud.Source{}, fmt.Errorf("%s: this cloud has no snapshots; if it has clones, a claim with the volume's claim as its dataSource copies it: %w",
			field, fault.InvalidArgument)
	case from.GetSnapshot() != nil:
		id := from.GetSnapshot().GetSnapshotId()
		return cloud.Source{Snapshot: cloud.SnapshotID(id)}, driver.CheckSnapshotID(field+".snapshot_id", id)
	case from.GetVolume() != nil && !s.caps.Clones:
		return cloud.Source{}, fmt.Errorf("%s: this cloud has no clones: %w", field, fault.InvalidArgument)
	case from.GetVolume() != nil:
		id := from.GetVolume().GetVolumeId()
		// The id alone, which the copy records as its source.
		return cloud.Source{Volume: s.volumeID(id)}, driver.CheckVolumeID(field+".volume_id", id)
	default:
		return cloud.Source{}, fmt.Errorf("%s: neither a snapshot nor a volume: %w", field, fault.InvalidArgument)
	}
}

// defaultSize returns the size of a volume without a required size: at least that of its source, which has to be read. Requests of
// Kubernetes always require a size.
func (s *Service) defaultSize(ctx context.Context, r *csi.CapacityRange, source cloud.Source) (cloud.Bytes, error) {
	switch {
	case r.GetRequiredBytes() > 0 || source.Blank():
		return s.caps.DefaultSize, nil
	case source.Snapshot != "":
		snap, err := s.cloud.GetSnapshot(ctx, source.Snapshot)
		return s.sizeOfSource(snap.Size, err)
	default:
		vol, err := s.cloud.GetVolume(ctx, source.Volume)
		return s.sizeOfSource(vol.Size, err)
	}
}

// sizeOfSource leaves the error about a missing source to the create: it may not exist, or be in another place, which has another
// code.
func (s *Service) sizeOfSource(size cloud.Bytes, err error) (cloud.Bytes, error) {
	if err != nil && goneForSure(err) {
		return s.caps.DefaultSize, nil
	}
	return max(s.caps.DefaultSize, size), err
}

// DeleteVolume deletes the volume with exactly this id. One that does not exist is no error.
func (s *Service) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := driver.CheckVolumeID("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	release, err := s.lockVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.cloud.DeleteVolume(ctx, s.volumeID(req.GetVolumeId())); err != nil && !goneForSure(err) {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// goneForSure reports whether the backend is certain that the object does not exist.
func goneForSure(err error) bool { return fault.Of(err) == fault.NotFound }

// ValidateVolumeCapabilities confirms what the volume can do, or returns a message with the reason why not.
func (s *Service) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := driver.CheckVolumeID("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, fmt.Errorf("volume_capabilities: missing: %w", fault.InvalidArgument)
	}
	vol, err := s.cloud.GetVolume(ctx, s.volumeID(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	if err := s.validate(req, vol); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
		MutableParameters:  req.GetMutableParameters(),
	}}, nil
}

func (s *Service) validate(req *csi.ValidateVolumeCapabilitiesRequest, vol cloud.Volume) error {
	if _, err := s.parseMutableParameters(req.GetMutableParameters()); err != nil {
		return err
	}
	if err := driver.CheckCapabilities("volume_capabilities", req.GetVolumeCapabilities()); err != nil {
		return err
	}
	if _, err := s.parseVolumeParameters(req.GetParameters()); err != nil {
		return err
	}
	said, err := s.names.DecodeVolumeContext(req.GetVolumeContext())
	if err != nil {
		return err
	}
	if said.DeviceName != "" && vol.Device.Name != "" && said.DeviceName != vol.Device.Name {
		return errors.New("volume_context: the device name is another volume's")
	}
	return nil
}

// ControllerGetVolume returns the current state of a volume.
func (s *Service) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := driver.CheckVolumeID("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	vol, err := s.cloud.GetVolume(ctx, s.volumeID(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	answer := s.volume(vol)
	answer.VolumeId = req.GetVolumeId() // even if the vendor's form of it has an older name
	return &csi.ControllerGetVolumeResponse{
		Volume: answer,
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: nodeIDs(vol.AttachedTo)},
	}, nil
}
