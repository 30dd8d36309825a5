package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
)

// NodeUnstageVolume undoes NodeStageVolume. It answers OK only when nothing on this machine holds
// the volume's device, because the orchestrator then takes the device away.
func (s *Server) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := driver.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	if err := checkPath("staging_target_path", staging); err != nil {
		return nil, err
	}
	release, err := s.locks.claim("unstage volume "+id, wholeVolume(id), wholePath(staging))
	if err != nil {
		return nil, err
	}
	// Writing back what is still in memory may take longer than the call; it is waited for all the same.
	err = s.outlive(ctx, release, func(work context.Context) error { return s.unstage(work, id, staging) })
	if err != nil {
		return nil, fmt.Errorf("unstage volume %s from %s: %w", id, staging, err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (s *Server) unstage(ctx context.Context, id, staging string) error {
	claim := device.Claim{Volume: id}
	dev, err := s.find(ctx, claim, staging, blockFile(staging))
	if err != nil {
		return err
	}
	if dev != nil {
		claim = dev.Claim()
		// When it is unmounted, only this leads a repeat to the disk.
		err = s.records.Remember(claim)
	}
	if err == nil {
		err = s.unmountStaged(ctx, dev, staging)
	}
	if dev != nil {
		err = errors.Join(err, dev.Close())
	}
	if err != nil {
		return err
	}
	if err := s.devices.Release(ctx, claim); err != nil {
		return err
	}
	// Last: until here a repeat still needs it.
	return s.records.Forget(id)
}

// unmountStaged takes the volume off its staging path, or changes nothing if somebody uses it.
func (s *Server) unmountStaged(ctx context.Context, dev *device.Device, staging string) error {
	if dev != nil {
		used, err := s.others(dev, staging, blockFile(staging))
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return fmt.Errorf("the volume is in use at %s; unpublish it there first: %w", strings.Join(used, ", "), fault.Precondition)
		}
	}
	// The filesystem first: below it a path ending in the block file's name would be a user's file.
	if err := s.unmountOurs(ctx, dev, staging); err != nil {
		return err
	}
	node := blockFile(staging)
	if err := s.unmountOurs(ctx, dev, node); err != nil {
		return err
	}
	if _, err := os.Lstat(node); err == nil {
		if err := s.mounts.RemoveTarget(node); err != nil {
			return err
		}
	}
	if dev == nil {
		return nil
	}
	left, err := s.others(dev)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("its device %s is still in use at %s: %w", dev.Path(), strings.Join(left, ", "), fault.Precondition)
	}
	return nil
}

// mostLayers is how often one volume may be mounted over itself at one path before it looks like
// an unmount that does nothing.
const mostLayers = 16

// unmountOurs unmounts whatever of this volume is mounted at path. What is not of this volume stays,
// and is an error: the path is not ours to clear.
func (s *Server) unmountOurs(ctx context.Context, dev *device.Device, path string) error {
	for range mostLayers {
		at, err := s.look(path, dev)
		if err != nil {
			return err
		}
		switch at.occupant {
		case free:
			return nil
		case foreign:
			return fmt.Errorf("%s (%s) is mounted at %s, which is not this volume; it was left alone: %w",
				at.mount.Source, at.mount.Filesystem, path, fault.Precondition)
		}
		// What the pods wrote goes to the disk now: where somebody else has the filesystem mounted too, an unmount
		// writes nothing. Of a disk that fails or has gone, what is lost is lost; the rest of the way stays open.
		if err := s.mounts.Flush(path); err != nil {
			driver.LogOf(ctx).Error("what was written last may not be on the disk", zap.Error(err))
		}
		if err := s.mounts.UnmountTop(ctx, path); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is still mounted after %d unmounts: %w", path, mostLayers, fault.Unavailable)
}
