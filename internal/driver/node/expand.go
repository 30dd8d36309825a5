package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/luks"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// NodeExpandVolume grows a staged or published volume to the requested size: the device if this node can grow it, then the
// filesystem. Without a size the filesystem fills the device. It never shrinks anything, and it changes nothing of a volume
// that is large enough.
func (s *Server) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	id, path, staging := req.GetVolumeId(), req.GetVolumePath(), req.GetStagingTargetPath()
	if err := driver.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	if err := s.checkVolumePath(path); err != nil {
		return nil, err
	}
	if staging != "" {
		if err := s.checkPath("staging_target_path", staging); err != nil {
			return nil, err
		}
	}
	if c := req.GetVolumeCapability(); c != nil {
		if err := driver.CheckCapability("volume_capability", c); err != nil {
			return nil, err
		}
	}
	if err := checkRange(req.GetCapacityRange()); err != nil {
		return nil, err
	}
	release, err := s.locks.Acquire(driver.OfVolume(id))
	if err != nil {
		return nil, err
	}
	var size int64
	err = s.runDetached(ctx, release, func(work context.Context) (err error) {
		size, err = s.expand(work, req)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("expand volume %s at %s: %w", id, path, err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

func checkRange(r *csi.CapacityRange) error {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case required < 0:
		return fmt.Errorf("capacity_range: required_bytes: negative: %w", fault.OutOfRange)
	case limit < 0:
		return fmt.Errorf("capacity_range: limit_bytes: negative: %w", fault.OutOfRange)
	case limit > 0 && required > limit:
		return fmt.Errorf("capacity_range: required_bytes %d is above limit_bytes %d: %w", required, limit, fault.OutOfRange)
	}
	return nil
}

func (s *Server) expand(ctx context.Context, req *csi.NodeExpandVolumeRequest) (size int64, err error) {
	table, err := s.mounts.Table()
	if err != nil {
		return 0, err
	}
	dev, at, err := s.locate(ctx, table, req.GetVolumeId(), req.GetVolumePath())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if c := req.GetVolumeCapability(); c != nil && (c.GetBlock() != nil) != at.Block {
		return 0, fmt.Errorf("volume_capability: the volume is in use with the other access type: %w", fault.InvalidArgument)
	}
	if size, err = dev.Size(); err != nil {
		return 0, err
	}
	if size, err = s.growDevice(ctx, dev.Spec(), size, req.GetCapacityRange()); err != nil {
		return 0, err
	}
	used, done, err := s.used(dev, at)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if mapping, ok := used.(*luks.Mapping); ok {
		// An earlier call may have grown only some of the disk, the mapping and the filesystem, so each is checked.
		if err := s.crypt.Grow(ctx, mapping, driver.NewSecret(req.GetSecrets()[driver.SecretLUKS])); err != nil {
			return 0, err
		}
	}
	if at.Block {
		return size, nil
	}
	// Through the staging path when it is known: the target may be bound read-only, and then the kernel refuses.
	if staging := req.GetStagingTargetPath(); staging != "" {
		if staged, err := table.At(staging, dev.Number()); err == nil && staged.Use == mount.Ours && !staged.Block {
			at = staged
		}
	}
	return size, s.mounts.Grow(ctx, used, at)
}

// untilShown waits for a disk to show a growth: the cloud answers when the growth has ended, and the kernel reads the size when it
// has handled the hypervisor's event. After a FailedPrecondition the kubelet does not expand the volume again while it is in use.
var untilShown = wait.Every(250*time.Millisecond, 20)

// growDevice returns the size of the device of a spec, which has this size, after growing it to what is required.
func (s *Server) growDevice(ctx context.Context, spec device.Spec, size int64, r *csi.CapacityRange) (int64, error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	if required > size {
		// Checked before anything grows, because a growth cannot be undone.
		if limit > 0 && required > limit/s.sizeStep*s.sizeStep {
			return 0, fmt.Errorf("capacity_range: limit_bytes: no multiple of %d bytes lies between %d and %d: %w",
				s.sizeStep, required, limit, fault.OutOfRange)
		}
		short := func(err error) bool { return fault.ReasonOf(err) == fault.GrowDetach }
		err := untilShown.Retry(ctx, short, func() (err error) {
			if size, err = s.devices.Grow(ctx, spec, required); err == nil && size < required {
				err = fmt.Errorf("the device has %d of %d bytes; scale the workload to zero, wait until the VolumeAttachment is gone, "+
					"then scale it up: %w", size, required, fault.GrowDetach)
			}
			return err
		})
		switch {
		case fault.Of(err) == fault.Exhausted:
			// This code stops the resizer: nothing on this node can make the size fit.
			return 0, fmt.Errorf("capacity_range: required_bytes %d: %w: %w", required, fault.OutOfRange, err)
		case err != nil:
			return 0, err
		}
	}
	if limit > 0 && size > limit {
		return 0, fmt.Errorf("capacity_range: limit_bytes: the volume has %d bytes, more than %d, and never shrinks: %w",
			size, limit, fault.OutOfRange)
	}
	return size, nil
}
