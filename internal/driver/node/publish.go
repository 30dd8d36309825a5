package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
)

// NodePublishVolume binds a staged volume to the target path. The staging path must be a live mount
// of the volume's own device: a folder left there by a lost mount is the machine's own disk.
func (s *Server) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	u, err := s.decodeUse(req)
	if err != nil {
		return nil, err
	}
	u.readOnly = u.readOnly || req.GetReadonly()
	staging, target := req.GetStagingTargetPath(), req.GetTargetPath()
	if err := checkTargetPath("target_path", target); err != nil {
		return nil, err
	}
	if staging == "" {
		// The specification wants this code and not InvalidArgument.
		return nil, fmt.Errorf("staging_target_path: missing, stage the volume first: %w", fault.Precondition)
	}
	if err := checkPath("staging_target_path", staging); err != nil {
		return nil, err
	}
	if target == staging || strings.HasPrefix(target, staging+"/") {
		return nil, fmt.Errorf("target_path: lies in the staging path: %w", fault.InvalidArgument)
	}
	volume := sharedVolume(u.volume)
	if u.oneTarget {
		volume = wholeVolume(u.volume) // so that of two at once only one finds no other target
	}
	release, err := s.locks.claim("publish volume "+u.volume, volume, wholePath(target))
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.publish(ctx, u, staging, target); err != nil {
		return nil, fmt.Errorf("publish volume %s at %s: %w", u.volume, target, err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (s *Server) publish(ctx context.Context, u use, staging, target string) (err error) {
	dev, err := s.find(ctx, u.claim, staging, blockFile(staging))
	if err != nil {
		return err
	}
	if dev == nil {
		return fmt.Errorf("its device is not on this machine, so it is not staged; stage it first: %w", fault.Precondition)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()

	if err := s.checkStaged(ctx, dev, u, staging); err != nil {
		return err
	}
	at, err := s.look(target, dev)
	if err != nil {
		return err
	}
	if at.occupant == foreign || at.occupant == dead {
		return fmt.Errorf("%s (%s) is mounted there, which is not this volume: %w", at.mount.Source, at.mount.Filesystem, fault.Conflict)
	}
	if at.occupant == ours && at.mount.ReadOnly != u.readOnly {
		return fmt.Errorf("it is published there with other access (read-only: %v); unpublish it first: %w", at.mount.ReadOnly, fault.Conflict)
	}
	if u.oneTarget && at.occupant == free {
		used, err := s.others(dev, staging, blockFile(staging))
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return fmt.Errorf("access mode SINGLE_NODE_SINGLE_WRITER allows one target path, and the volume is in use at %s: %w",
				strings.Join(used, ", "), fault.Precondition)
		}
	}
	if err := s.bind(ctx, dev, u, staging, target); err != nil {
		return err
	}
	return s.confirm(ctx, dev, target, at.occupant == free)
}

// checkStaged accepts a staging path where this volume is mounted in a way that serves the request.
func (s *Server) checkStaged(ctx context.Context, dev *device.Device, u use, staging string) error {
	path := staging
	if u.block {
		path = blockFile(staging)
	}
	at, err := s.look(path, dev)
	switch {
	case err != nil:
		return err
	case at.occupant == free:
		return fmt.Errorf("nothing is mounted at %s, so the volume is not staged there; stage it first: %w", path, fault.Precondition)
	case at.occupant != ours:
		return fmt.Errorf("%s (%s) is mounted at %s, which is not this volume; unstage and stage again: %w",
			at.mount.Source, at.mount.Filesystem, path, fault.Precondition)
	case at.block != u.block:
		return fmt.Errorf("the volume is staged at %s with the other access type: %w", staging, fault.Precondition)
	case !u.block && at.mount.Filesystem != string(u.filesystem):
		return fmt.Errorf("the volume is staged as %s, not as %s: %w", at.mount.Filesystem, u.filesystem, fault.Precondition)
	case at.mount.ReadOnly && !u.readOnly:
		return fmt.Errorf("the volume is staged read-only and cannot be published for writing: %w", fault.Precondition)
	case u.block:
		return nil
	}
	return s.checkAlive(ctx, path)
}

func (s *Server) bind(ctx context.Context, dev *device.Device, u use, staging, target string) error {
	if u.block {
		return s.mounts.BindDevice(ctx, dev, target, u.readOnly)
	}
	return s.mounts.BindDir(ctx, staging, target, mounter.BindOptions{ReadOnly: u.readOnly, Options: u.flags})
}

// confirm looks again at what was bound: between the check and the bind somebody may have unmounted
// the staging path, and then the target shows the folder below it. Such a bind is undone.
func (s *Server) confirm(ctx context.Context, dev *device.Device, target string, made bool) error {
	at, err := s.look(target, dev)
	if err != nil || at.occupant == ours {
		return err
	}
	err = fmt.Errorf("the staging path was unmounted meanwhile; stage the volume again: %w", fault.Precondition)
	if !made {
		return err
	}
	return errors.Join(err, s.mounts.Unmount(ctx, target), s.mounts.RemoveTarget(target))
}

// NodeUnpublishVolume undoes NodePublishVolume: it unmounts the target and removes it, but only if it
// is then empty. What is mounted there and is not this volume is left alone.
func (s *Server) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	if err := driver.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	if err := checkPath("target_path", target); err != nil {
		return nil, err
	}
	release, err := s.locks.claim("unpublish volume "+id, sharedVolume(id), wholePath(target))
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.unpublish(ctx, id, target); err != nil {
		return nil, fmt.Errorf("unpublish volume %s from %s: %w", id, target, err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (s *Server) unpublish(ctx context.Context, id, target string) (err error) {
	if _, err := os.Lstat(target); os.IsNotExist(err) {
		return nil
	}
	dev, err := s.find(ctx, device.Claim{Volume: id}, target)
	if err != nil {
		return err
	}
	if dev != nil {
		defer func() { err = errors.Join(err, dev.Close()) }()
	}
	if err := s.unmountOurs(ctx, dev, target); err != nil {
		return err
	}
	return s.mounts.RemoveTarget(target)
}
