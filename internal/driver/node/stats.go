package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
)

// NodeGetVolumeStats measures a volume at one of its paths: bytes and inodes of a filesystem, the
// size of a raw block device. It takes no lock.
func (s *Server) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (answer *csi.NodeGetVolumeStatsResponse, err error) {
	id, path := req.GetVolumeId(), req.GetVolumePath()
	if err := driver.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	if err := checkVolumePath(path); err != nil {
		return nil, err
	}
	if staging := req.GetStagingTargetPath(); staging != "" {
		if err := checkPath("staging_target_path", staging); err != nil {
			return nil, err
		}
	}
	dev, at, err := s.locate(ctx, id, path)
	if err != nil {
		return nil, fmt.Errorf("measure volume %s at %s: %w", id, path, err)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if at.block {
		size, err := dev.Size()
		if err != nil {
			return nil, err
		}
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}}}, nil
	}
	st, err := s.mounts.FilesystemStats(path)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: st.TotalBytes, Used: st.UsedBytes, Available: st.AvailableBytes},
		{Unit: csi.VolumeUsage_INODES, Total: st.TotalInodes, Used: st.UsedInodes, Available: st.AvailableInodes},
	}}, nil
}

// locate opens the device of a volume that is staged or published at path, or answers
// fault.NotFound. The caller closes the device.
func (s *Server) locate(ctx context.Context, id, path string) (*device.Device, place, error) {
	dev, err := s.find(ctx, device.Claim{Volume: id}, path, blockFile(path))
	if err != nil {
		return nil, place{}, err
	}
	if dev == nil {
		return nil, place{}, fmt.Errorf("the volume's device is not on this machine: %w", fault.NotFound)
	}
	// A raw block volume is also found by its staging folder.
	for _, candidate := range []string{path, blockFile(path)} {
		at, err := s.look(candidate, dev)
		if err != nil {
			return nil, place{}, errors.Join(err, dev.Close())
		}
		if at.occupant == ours {
			return dev, at, nil
		}
	}
	err = fmt.Errorf("the volume is neither staged nor published there: %w", fault.NotFound)
	return nil, place{}, errors.Join(err, dev.Close())
}
