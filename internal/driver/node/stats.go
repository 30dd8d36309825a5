package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// NodeGetVolumeStats measures a volume at one of its paths: bytes and inodes of a filesystem, the
// size of a raw block device. It takes no lock. It refuses a volume with a device that is stalled, and does not touch it.
func (s *Server) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (answer *csi.NodeGetVolumeStatsResponse, err error) {
	id, path := req.GetVolumeId(), req.GetVolumePath()
	if err := driver.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	if err := s.checkVolumePath(path); err != nil {
		return nil, err
	}
	if staging := req.GetStagingTargetPath(); staging != "" {
		if err := s.checkPath("staging_target_path", staging); err != nil {
			return nil, err
		}
	}
	table, err := s.mounts.Table()
	if err != nil {
		return nil, err
	}
	if found := s.stalled(table, id); len(found) > 0 {
		return nil, fmt.Errorf("measure volume %s: %w: %s", id, fault.Unavailable, found[0].Message)
	}
	dev, at, err := s.locate(ctx, table, id, path)
	if err != nil {
		s.noteGone(table, id, path)
		return nil, fmt.Errorf("measure volume %s at %s: %w", id, path, err)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if at.Block {
		used, done, err := s.used(dev, at)
		if err != nil {
			return nil, err
		}
		size, err := used.Size()
		if err = errors.Join(err, done()); err != nil {
			return nil, err
		}
		s.setHealth(id, at, nil) // the disk may have been gone and has come back
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}}}, nil
	}
	st, err := s.mounts.Stats(ctx, at.Mount)
	s.noteHealth(ctx, id, at)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: st.TotalBytes, Used: st.UsedBytes, Available: st.AvailableBytes},
		{Unit: csi.VolumeUsage_INODES, Total: st.TotalInodes, Used: st.UsedInodes, Available: st.AvailableInodes},
	}}, nil
}

// noteHealth sets the health of a mounted volume in the metrics.
func (s *Server) noteHealth(ctx context.Context, id string, at mount.State) {
	found, err := s.mounts.Health(ctx, at.Mount)
	if err = errors.Join(err, ctx.Err()); err != nil {
		driver.LogOf(ctx).Debug("the health of the volume is not known", zap.Error(err))
		return
	}
	var reasons []string
	for _, t := range found {
		reasons = append(reasons, t.Reason)
	}
	s.setHealth(id, at, reasons)
}

// setHealth sets in the metrics what was found at a mount of a volume, unless that has gone: then the volume may be unstaged, and nothing
// would remove it.
func (s *Server) setHealth(id string, at mount.State, reasons []string) {
	s.volumes.mu.Lock()
	defer s.volumes.mu.Unlock()
	if at.Mount.Stays() == nil {
		s.metrics.Health(id, reasons)
	}
}

// noteGone sets in the metrics that a volume is mounted and its disk is gone.
func (s *Server) noteGone(table *mount.Table, id, path string) {
	for _, path := range []string{path, blockFile(path)} {
		if at, err := table.At(path, 0); err == nil && at.Use == mount.Dead {
			s.setHealth(id, at, []string{reasonDeviceGone})
		}
	}
}

// locate opens the device of a volume that is staged or published at path, or returns fault.NotFound. The caller closes
// the device.
func (s *Server) locate(ctx context.Context, table *mount.Table, id, path string) (*device.Device, mount.State, error) {
	paths := []string{path, blockFile(path)} // a raw block volume is also found by its staging folder
	dev, err := s.find(ctx, table, device.Spec{Volume: id}, paths...)
	if err != nil {
		return nil, mount.State{}, err
	}
	if dev == nil {
		return nil, mount.State{}, fmt.Errorf("the volume's device is not on this machine: %w", fault.NotFound)
	}
	for _, candidate := range paths {
		at, err := s.at(table, candidate, dev.Number())
		if err != nil {
			return nil, mount.State{}, errors.Join(err, dev.Close())
		}
		if at.Use == mount.Ours {
			if err := s.noteFound(table, id, at.Path); err != nil {
				return nil, mount.State{}, errors.Join(err, dev.Close())
			}
			return dev, at, nil
		}
	}
	err = fmt.Errorf("the volume is neither staged nor published there: %w", fault.NotFound)
	return nil, mount.State{}, errors.Join(err, dev.Close())
}
