package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ControllerExpandVolume makes a volume larger. The node is asked to follow only where it has
// something to do: it grows filesystems, and on some clouds has to confirm the size of a raw device.
func (s *Service) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := need(s.caps.Expand, "ControllerExpandVolume"); err != nil {
		return nil, err
	}
	if err := driver.CheckVolumeID("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if req.GetCapacityRange() == nil {
		return nil, fmt.Errorf("capacity_range: missing: %w", fault.InvalidArgument)
	}
	capability := req.GetVolumeCapability()
	if capability != nil {
		if err := driver.CheckCapability("volume_capability", capability); err != nil {
			return nil, err
		}
	}
	size, err := sizeWithin(req.GetCapacityRange(), s.caps.SmallestVolume, s.caps)
	if err != nil {
		return nil, err
	}
	done, err := s.cloud.ExpandVolume(ctx, cloud.VolumeID(req.GetVolumeId()), size)
	if err != nil {
		return nil, err
	}
	if limit := cloud.Bytes(req.GetCapacityRange().GetLimitBytes()); limit > 0 && done.Size > limit {
		return nil, fmt.Errorf("capacity_range.limit_bytes: volume %s has %d bytes already, more than the limit of %d, and volumes never shrink: %w",
			req.GetVolumeId(), int64(done.Size), int64(limit), fault.OutOfRange)
	}
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes:         int64(done.Size),
		NodeExpansionRequired: capability.GetBlock() == nil || done.NodeMustConfirm,
	}, nil
}
