package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

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
	changes, err := s.parseMutableParameters(req.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	// Those that the volume has are in the attributes of its PersistentVolume, which never change and are not in this request.
	if changes.limits != (driver.IOLimits{}) {
		return nil, fmt.Errorf("mutable_parameters: limits of I/O are set when a volume is created and stay as they are: %w", fault.IOLimitsFixed)
	}
	release, err := s.lockVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	err = s.cloud.ModifyVolume(ctx, s.volumeID(req.GetVolumeId()), changes.tags)
	if fault.Of(err) == fault.Exhausted {
		// As in ControllerExpandVolume: the resizer would not take another class or the earlier one. Only InvalidArgument lets it go back.
		return nil, fmt.Errorf("%w: %w", fault.InvalidArgument, err)
	}
	if err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}
