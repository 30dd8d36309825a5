package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ControllerExpandVolume grows a volume. It requires a node expansion only if the node has something to do: the node grows
// filesystems, and on some clouds has to confirm the size of a raw device.
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
	release, err := s.lockVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	limit := cloud.Bytes(req.GetCapacityRange().GetLimitBytes())
	if err := s.staysBelow(ctx, s.volumeID(req.GetVolumeId()), size, limit); err != nil {
		return nil, err
	}
	done, err := s.cloud.ExpandVolume(ctx, s.volumeID(req.GetVolumeId()), size)
	if fault.Of(err) == fault.Exhausted {
		// The error is about a quota. The resizer treats ResourceExhausted as a growth that may still be under way, and then never
		// tries the smaller size to which a PersistentVolumeClaim is lowered.
		return nil, fmt.Errorf("%w: %w", fault.OutOfRange, err)
	}
	if err != nil {
		return nil, err
	}
	if limit > 0 && done.Size > limit {
		return nil, fmt.Errorf("capacity_range.limit_bytes: volume %s has %d bytes already, more than the limit of %d, and volumes never shrink: %w",
			req.GetVolumeId(), int64(done.Size), int64(limit), fault.OutOfRange)
	}
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes:         int64(done.Size),
		NodeExpansionRequired: capability.GetBlock() == nil || done.NodeMustConfirm,
	}, nil
}

// staysBelow refuses a growth that would end above the limit before anything changes, because volumes never shrink. A volume can
// have its own unit of sizes, which has to be read. Requests of Kubernetes have no limit and cost no read.
func (s *Service) staysBelow(ctx context.Context, id cloud.VolumeID, size, limit cloud.Bytes) error {
	if limit == 0 {
		return nil
	}
	vol, err := s.cloud.GetVolume(ctx, id)
	if err != nil || size <= vol.Size {
		return err
	}
	step := max(vol.SizeStep, s.caps.SizeStep)
	if rounded, ok := roundUp(size, step); !ok || rounded > limit {
		return fmt.Errorf("capacity_range.limit_bytes: %d is less than the next size that volume %s can have (it has %s, and grows in steps of %s): %w",
			int64(limit), id, vol.Size, step, fault.OutOfRange)
	}
	return nil
}
