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
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
)

// NodeStageVolume finds the volume's device, proves that it is the right one, makes a filesystem if
// the device is proven blank, and mounts it at the staging path. A raw block volume is staged as a
// bind of its device node. When it fails, what this call did is undone, and nothing else.
func (s *Server) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	const field = "staging_target_path"
	u, err := s.decodeUse(req)
	if err != nil {
		return nil, err
	}
	staging := req.GetStagingTargetPath()
	if err := checkStagingFolder(field, staging); err != nil {
		return nil, err
	}
	release, err := s.locks.claim("stage volume "+u.volume, wholeVolume(u.volume), wholePath(staging))
	if err != nil {
		return nil, err
	}
	dev, attached, err := s.open(ctx, u.claim)
	if err != nil {
		release()
		return nil, err
	}
	err = s.outlive(ctx, release, func(work context.Context) error {
		err := errors.Join(s.stageOnRecord(ctx, work, dev, u, staging), dev.Close())
		if err != nil && attached {
			s.giveBack(work, u.claim)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stage volume %s at %s: %w", u.volume, staging, err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// open finds the device, and says whether it was this call that brought it to the machine.
func (s *Server) open(ctx context.Context, claim device.Claim) (dev *device.Device, attached bool, err error) {
	if dev, err = s.lookup(ctx, claim); err != nil {
		return nil, false, err
	}
	attached = dev == nil
	if dev != nil {
		if err := dev.Close(); err != nil {
			return nil, false, err
		}
	}
	if dev, err = s.devices.Open(ctx, claim); err != nil {
		if attached {
			// It may have come and then turned out not to be what was promised.
			s.giveBack(context.WithoutCancel(ctx), device.Claim{Volume: claim.Volume})
		}
		return nil, false, err
	}
	return dev, attached, nil
}

// giveBack releases a device after a stage that failed. The stage's own error is what the caller
// gets; a device that stays is found and used by the next stage, or released by unstage.
func (s *Server) giveBack(ctx context.Context, claim device.Claim) {
	if err := s.devices.Release(ctx, claim); err != nil {
		driver.LogOf(ctx).Warn("device stays after a stage that failed", zap.Error(err))
	}
}

// stageOnRecord writes down which disk the volume is before anything of it is mounted, so that unstage
// finds it whatever happens then.
//
// A disk that is on record as another volume's is refused while anybody uses it: the caller alone says
// whose it is. One that nobody uses is what a volume that is gone, or a machine that died, left on record.
func (s *Server) stageOnRecord(call, work context.Context, dev *device.Device, u use, staging string) error {
	owners, err := s.owners(work, dev)
	if err != nil {
		return err
	}
	if len(owners) > 0 {
		used, err := s.others(dev)
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return fmt.Errorf("%s is the disk of volume %s, which is in use at %s: %w",
				dev.Path(), owners[0], strings.Join(used, ", "), fault.Precondition)
		}
	}
	if err := s.records.Remember(u.claim); err != nil {
		return err
	}
	if err = s.stage(call, work, dev, u, staging); err == nil {
		for _, owner := range owners {
			err = errors.Join(err, s.records.Forget(owner))
		}
		return err
	}
	// With another owner what is mounted now is not ours: that volume was being staged at the same time.
	if used, lookErr := s.others(dev); lookErr == nil && (len(used) == 0 || len(owners) > 0) {
		// Nobody needs to unstage it, and perhaps nobody will.
		err = errors.Join(err, s.records.Forget(u.volume))
	}
	return err
}

// stage does what must not be broken off with work, and begins nothing new once call has ended.
func (s *Server) stage(call, work context.Context, dev *device.Device, u use, staging string) error {
	own := staging
	if u.block {
		own = blockFile(staging)
	}
	if err := s.clearDead(work, dev, own); err != nil {
		return err
	}
	at, err := s.look(staging, dev)
	if err != nil {
		return err
	}
	node, err := s.look(blockFile(staging), dev)
	if err != nil {
		return err
	}
	if at.occupant == foreign || at.occupant == dead {
		return fmt.Errorf("%s (%s) is mounted there, which is not this volume: %w", at.mount.Source, at.mount.Filesystem, fault.Conflict)
	}
	if u.block {
		return s.stageBlock(work, dev, u, staging, at)
	}
	if at.occupant == free && node.occupant != free {
		return fmt.Errorf("a raw block volume is staged there: %w", fault.Conflict)
	}
	filesystem := u.filesystem
	if at.occupant == free {
		if filesystem, err = s.format(call, work, dev, u, staging); err != nil {
			return err
		}
	} else if at.mount.Filesystem != string(u.filesystem) {
		return fmt.Errorf("the volume is mounted there as %s, not as %s: %w", at.mount.Filesystem, u.filesystem, fault.Conflict)
	} else if err := s.checkAlive(work, staging); err != nil {
		return err
	}
	return s.mounts.MountDevice(work, dev, mounter.MountRequest{
		Target: staging, Filesystem: filesystem, Options: u.flags, ReadOnly: u.readOnly,
	})
}

// format returns the filesystem of a device that is not mounted at the staging path yet.
func (s *Server) format(call, work context.Context, dev *device.Device, u use, staging string) (mounter.Filesystem, error) {
	if err := s.checkUnused(dev, staging); err != nil {
		return "", err
	}
	history, err := s.history(work, dev)
	if err != nil {
		return "", err
	}
	filesystem, err := s.mounts.EnsureFormatted(work, dev, mounter.FormatRequest{
		Volume:        u.volume,
		Filesystem:    u.filesystem,
		MkfsOptions:   u.context.MkfsOptions,
		Size:          u.context.Size,
		Forbidden:     u.readOnly || u.context.NeverFormat != "",
		HasContent:    u.context.Content == driver.ContentCopy,
		BlankCreated:  u.context.Content == driver.ContentBlank,
		FormatNonZero: u.context.FormatNonZero,
		History:       history,
	})
	if err != nil && u.context.NeverFormat != "" {
		return "", fmt.Errorf("its attribute %s forbids formatting: %w", u.context.NeverFormat, err)
	}
	if err != nil {
		return "", err
	}
	// The call may have ended meanwhile, and kubelet may have given the pod up.
	return filesystem, call.Err()
}

// history says what the resolver can prove about the writes to a device.
func (s *Server) history(ctx context.Context, dev *device.Device) (mounter.History, error) {
	if s.neverWritten == nil {
		return mounter.HistoryUnknown, nil
	}
	never, err := s.neverWritten(ctx, dev)
	if err != nil || !never {
		return mounter.Written, err
	}
	return mounter.NeverWritten, nil
}

func (s *Server) stageBlock(ctx context.Context, dev *device.Device, u use, staging string, at place) error {
	if at.occupant != free {
		return fmt.Errorf("the volume is mounted there as %s, not staged as a raw block device: %w", at.mount.Filesystem, fault.Conflict)
	}
	node, err := s.look(blockFile(staging), dev)
	if err != nil {
		return err
	}
	if node.occupant == free {
		if err := s.checkUnused(dev, staging); err != nil {
			return err
		}
	}
	return s.mounts.BindDevice(ctx, dev, blockFile(staging), u.readOnly)
}

// checkUnused accepts a device that nothing on this machine uses and a staging folder that holds
// nothing. A volume has one staging path; a folder with files in it was written to while no volume
// was mounted, and mounting over them would hide them from whoever looks for them.
func (s *Server) checkUnused(dev *device.Device, staging string) error {
	used, err := s.others(dev)
	if err != nil {
		return err
	}
	if len(used) > 0 {
		return fmt.Errorf("its device %s is in use at %s; unpublish and unstage there first: %w",
			dev.Path(), strings.Join(used, ", "), fault.Precondition)
	}
	entries, err := os.ReadDir(staging)
	if err != nil {
		return fmt.Errorf("look into the staging path: %w: %w", fault.Unavailable, err)
	}
	for _, e := range entries {
		if staging+"/"+e.Name() != blockFile(staging) {
			return fmt.Errorf("the staging path is not empty, it holds %q: %w", e.Name(), fault.Conflict)
		}
	}
	return nil
}
