package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ControllerModifyVolume applies a VolumeAttributesClass to a volume. Properties that the class does not name stay unchanged.
func (s *Service) ControllerModifyVolume(ctx context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := need(s.caps.Modify, "ControllerModifyVolume"); err != nil {
		return nil, err
	}
	if err := driver.CheckVolumeID("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(req.GetMutableParameters()) == 0 {
		return nil, fmt.Errorf("mutable_parameters: missing: %w", fault.InvalidArgument)
	}
	tags, err := s.parseMutableParameters(req.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	release, err := s.lockVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.cloud.ModifyVolume(ctx, cloud.VolumeID(req.GetVolumeId()), tags); err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}
