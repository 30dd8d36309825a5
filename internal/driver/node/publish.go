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
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
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
	if err := s.checkTargetPath("target_path", target); err != nil {
		return nil, err
	}
	if staging == "" {
		// The specification wants this code and not InvalidArgument.
		return nil, fmt.Errorf("staging_target_path: missing, stage the volume first: %w", fault.Precondition)
	}
	if err := s.checkPath("staging_target_path", staging); err != nil {
		return nil, err
	}
	if target == staging || strings.HasPrefix(target, staging+"/") {
		return nil, fmt.Errorf("target_path: lies in the staging path: %w", fault.InvalidArgument)
	}
	volume := driver.ShareVolume(u.volume)
	if u.oneTarget {
		volume = driver.OfVolume(u.volume) // so that of two at once only one finds no other target
	}
	release, err := s.locks.Acquire(volume, driver.OfPath(target))
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
	table, err := s.mounts.Table()
	if err != nil {
		return err
	}
	dev, err := s.find(ctx, table, u.spec, staging, blockFile(staging))
	if err != nil {
		return err
	}
	if dev == nil {
		return fmt.Errorf("its device is not on this machine, so it is not staged; stage it first: %w", fault.Precondition)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if err := dev.Verify(ctx); err != nil {
		return err
	}

	staged, err := s.staged(ctx, table, dev, u, staging)
	if err != nil {
		return err
	}
	at, err := s.at(table, target, dev.Number())
	if err != nil {
		return err
	}
	if u.oneTarget && at.Use == mount.Free {
		used, err := table.Holders(dev.Number(), staging, blockFile(staging))
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return fmt.Errorf("access mode SINGLE_NODE_SINGLE_WRITER allows one target path, and the volume is in use at %s: %w",
				strings.Join(used, ", "), fault.Precondition)
		}
	}
	// Before the pod can use the volume.
	if err := s.limit(ctx, u, target, staged.Mount.Device); err != nil {
		return err
	}
	if u.block {
		used, done, err := s.used(dev, staged)
		if err != nil {
			return err
		}
		return errors.Join(s.mounts.BindNode(ctx, used, at, u.readOnly), done())
	}
	return s.mounts.Bind(ctx, staged, at, mount.BindOptions{ReadOnly: u.readOnly, Options: u.flags})
}

// staged returns the volume's mount at the staging path, and refuses one that does not fit the request.
func (s *Server) staged(ctx context.Context, table *mount.Table, dev *device.Device, u use, staging string) (mount.State, error) {
	path := staging
	if u.block {
		path = blockFile(staging)
	}
	at, err := s.at(table, path, dev.Number())
	refuse := func(format string, args ...any) (mount.State, error) {
		return at, fmt.Errorf(format+": %w", append(args, fault.Precondition)...)
	}
	switch {
	case err != nil:
		return at, err
	case at.Use == mount.Free:
		return refuse("nothing is mounted at %s, so the volume is not staged there; stage it first", path)
	case at.Use != mount.Ours:
		return refuse("%s (%s) is mounted at %s, which is not this volume; unstage and stage again", at.Mount.Source, at.Mount.FSType, path)
	case at.Block != u.block:
		return refuse("the volume is staged at %s with the other access type", staging)
	case u.context.LUKS != (at.Mount.Device != dev.Number()):
		return refuse("the volume is staged at %s with encryption: %t, which is not what its attributes say", staging, !u.context.LUKS)
	case !u.block && at.Mount.FSType != string(u.filesystem):
		return refuse("the volume is staged as %s, not as %s", at.Mount.FSType, u.filesystem)
	case at.Mount.ReadOnlyByError() && !u.readOnly:
		return refuse("the kernel has made the filesystem read-only after an error (see its log); scale the workload to zero: the next stage checks it")
	case at.Mount.ReadOnly() && !u.readOnly:
		return refuse("the volume is staged read-only and cannot be published for writing")
	case u.block:
		return at, nil
	}
	return at, s.checkAlive(ctx, at)
}

// NodeUnpublishVolume undoes NodePublishVolume: it unmounts the target and removes it if it is then empty. It leaves mounts of
// anything but this volume in place.
func (s *Server) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	if err := driver.CheckVolumeID("volume_id", id); err != nil {
		return nil, err
	}
	if err := s.checkPath("target_path", target); err != nil {
		return nil, err
	}
	release, err := s.locks.Acquire(driver.ShareVolume(id), driver.OfPath(target))
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.unpublish(ctx, id, target); err != nil {
		return nil, fmt.Errorf("unpublish volume %s from %s: %w", id, target, err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (s *Server) unpublish(ctx context.Context, id, target string) error {
	if _, err := os.Lstat(target); os.IsNotExist(err) {
		return nil
	}
	table, err := s.mounts.Table()
	if err != nil {
		return err
	}
	// A malformed id is an error. A volume that is not found is not: its mount may still have to be removed.
	_, number, err := s.identify(ctx, table, id, target)
	if errors.Is(err, fault.InvalidArgument) {
		return err
	}
	s.unlimit(ctx, table, target, number)
	if _, err := s.unmountOurs(ctx, table, id, target); err != nil {
		return err
	}
	return s.mounts.RemoveTarget(target)
}

// unmountOurs unmounts every mount of this volume at path, one of the volume's own paths, and returns the mount table
// afterwards. A mount of anything else stays and is an error.
func (s *Server) unmountOurs(ctx context.Context, table *mount.Table, id, path string) (*mount.Table, error) {
	for range maxLayers {
		at, err := s.at(table, path, 0)
		switch {
		case err != nil:
			return nil, err
		case at.Use == mount.Free:
			return table, nil
		case at.Use == mount.Dead, at.Block:
			// A bind of a device node holds no data, and at the volume's own path it is the volume's, whatever device the node
			// leads to now: a program that can write to a loop device can detach its file, and the kernel then gives the number
			// to another volume.
		default:
			_, number, err := s.identify(ctx, table, id, path)
			if err != nil {
				return nil, err
			}
			if at, err = table.At(path, number); err != nil {
				return nil, err
			}
			if at.Use != mount.Ours {
				return nil, fmt.Errorf("%s (%s) is mounted at %s, which is not this volume; it was left alone: %w",
					at.Mount.Source, at.Mount.FSType, path, fault.Precondition)
			}
		}
		// Written back here, because an unmount writes nothing while the filesystem is mounted elsewhere too. An error does not
		// stop the unpublish: what a failed disk cannot take is lost anyway.
		if err := mount.Flush(at); err != nil {
			driver.LogOf(ctx).Error("what was written last may not be on the disk", zap.Error(err))
		}
		if err := s.mounts.Unmount(ctx, at); err != nil {
			return nil, err
		}
		if table, err = s.mounts.Table(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s is still mounted after %d unmounts: %w", path, maxLayers, fault.Unavailable)
}
