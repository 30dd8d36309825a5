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
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// NodeStageVolume finds the volume's device, proves that it is the volume's, makes a filesystem if the device is proven blank,
// and mounts it at the staging path. A raw block volume is staged as a bind of its device node. For an encrypted volume the
// mapping takes the place of the disk. After an error it undoes what this call did and nothing else.
func (s *Server) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	const field = "staging_target_path"
	u, err := s.decodeUse(req)
	if err != nil {
		return nil, err
	}
	u.key = driver.NewSecret(req.GetSecrets()[driver.SecretLUKS])
	staging := req.GetStagingTargetPath()
	if err := s.checkStagingFolder(field, staging); err != nil {
		return nil, err
	}
	release, err := s.locks.Acquire(driver.OfVolume(u.volume), driver.OfPath(staging))
	if err != nil {
		return nil, err
	}
	dev, attached, err := s.open(ctx, u.spec)
	if err != nil {
		release()
		return nil, err
	}
	err = s.runDetached(ctx, release, func(work context.Context) error {
		idle, err := s.stageRecorded(ctx, work, dev, u, staging)
		err = errors.Join(err, dev.Close())
		// After a final answer no call may follow that releases what an earlier run of this program attached.
		if err != nil && (attached || idle && driver.Final(err)) {
			s.release(work, u.spec)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stage volume %s at %s: %w", u.volume, staging, err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// open finds the device. attached reports whether this call made it appear on the machine.
func (s *Server) open(ctx context.Context, spec device.Spec) (dev *device.Device, attached bool, err error) {
	dev, lookupErr := s.lookup(ctx, spec) // its error may pass while Open waits
	attached = dev == nil && lookupErr == nil
	if dev != nil {
		if err := dev.Close(); err != nil {
			return nil, false, err
		}
	}
	if dev, err = s.devices.Open(ctx, spec); err != nil {
		if attached {
			// The device may have appeared and then failed the check of its identity.
			s.release(context.WithoutCancel(ctx), device.Spec{Volume: spec.Volume})
		}
		return nil, false, err
	}
	return dev, attached, nil
}

// release releases a device after a stage that failed. Its error is only logged: the call returns the stage's, and a device
// that stays is used by the next stage or released by unstage.
func (s *Server) release(ctx context.Context, spec device.Spec) {
	if err := s.devices.Release(ctx, spec); err != nil {
		driver.LogOf(ctx).Warn("device stays after a stage that failed", zap.Error(err))
	}
}

// stageRecorded records which disk the volume is before it mounts anything, so that unstage finds the disk whatever happens.
//
// It refuses a disk that is recorded as another volume's while anything uses it, because nothing but the request links it to
// this one. The record of a disk that nothing uses is stale: its volume is gone, or the machine crashed.
//
// idle reports after an error that nothing uses the disk.
func (s *Server) stageRecorded(call, work context.Context, dev *device.Device, u use, staging string) (idle bool, err error) {
	owners, err := s.owners(work, dev)
	if err != nil {
		return false, err
	}
	if len(owners) > 0 {
		used, err := s.holders(dev)
		if err != nil {
			return false, err
		}
		if len(used) > 0 {
			return false, fmt.Errorf("%s is the disk of volume %s, which is in use at %s: %w",
				dev.Path(), owners[0], strings.Join(used, ", "), fault.Precondition)
		}
	}
	spec := u.spec
	spec.Place = u.place(staging)
	if err := s.records.Remember(spec); err != nil {
		return false, err
	}
	if err = s.stage(call, work, dev, u, staging); err == nil {
		for _, owner := range owners {
			err = errors.Join(err, s.records.Forget(owner))
		}
		table, tableErr := s.mounts.Table()
		if tableErr == nil {
			_, tableErr = s.noteStaged(table, u.volume, spec.Place)
		}
		return false, errors.Join(err, tableErr)
	}
	// With another owner, what is mounted now is that volume's, which was being staged at the same time.
	used, tableErr := s.holders(dev)
	idle = tableErr == nil && len(used) == 0
	if idle || tableErr == nil && len(owners) > 0 {
		// There is nothing to unstage, and perhaps no call will.
		err = errors.Join(err, s.records.Forget(u.volume))
	}
	return idle, err
}

// holders returns what uses the device.
func (s *Server) holders(dev *device.Device) ([]string, error) {
	table, err := s.mounts.Table()
	if err != nil {
		return nil, err
	}
	return table.Holders(dev.Number())
}

// stage runs with the context work, which does not end, and begins no new step once call has ended.
func (s *Server) stage(call, work context.Context, dev *device.Device, u use, staging string) error {
	p, err := s.placeOf(work, dev, u, staging)
	made := false
	switch {
	case err != nil:
		return err
	case p.at.Use == mount.Free:
		if err := s.clearMappings(work, p.table, dev, u); err != nil {
			return err
		}
		if err := s.checkUnused(p.table, dev, staging); err != nil {
			return err
		}
		if made, err = s.formatDisk(call, work, dev, u); err != nil {
			return err
		}
	case p.at.Use == mount.Ours && !p.at.Block:
		if err := s.checkAlive(work, p.at); err != nil {
			return err
		}
	}
	if u.context.LUKS {
		return s.stageEncrypted(call, work, dev, u, p)
	}
	return s.put(work, dev, u, p, made)
}

// put mounts the device, a disk or the mapping of an encrypted one, or binds its node. made: this call has made the filesystem.
func (s *Server) put(ctx context.Context, dev mounter.BlockDevice, u use, p place, made bool) error {
	if u.block {
		return s.mounts.BindNode(ctx, dev, p.at, u.readOnly)
	}
	return s.mounts.Mount(ctx, dev, p.at, mount.Request{Filesystem: u.filesystem, Options: u.flags, ReadOnly: u.readOnly, New: made})
}

// place is where a volume is to be staged, and what is mounted there already.
type place struct {
	table *mount.Table
	at    mount.State
}

// placeOf returns the place of a volume in its staging folder: the folder itself, or the block file. It refuses a folder in
// which the volume is staged with the other access type, or with an encryption mapping if it has none, or without its own.
func (s *Server) placeOf(ctx context.Context, dev *device.Device, u use, staging string) (place, error) {
	table, err := s.clearDead(ctx, dev, u.place(staging))
	if err != nil {
		return place{}, err
	}
	at, err := s.at(table, staging, dev.Number())
	if err != nil {
		return place{}, err
	}
	node, err := s.at(table, blockFile(staging), dev.Number())
	if err != nil {
		return place{}, err
	}
	p := place{table, at}
	switch {
	case u.block && at.Use == mount.Ours:
		return p, fmt.Errorf("the volume is mounted there as %s, not staged as a raw block device: %w", at.Mount.FSType, fault.Conflict)
	case u.block && at.Use != mount.Free:
		return p, at.NotOurs()
	case u.block:
		p.at = node
	case at.Use == mount.Free && node.Use != mount.Free:
		return p, fmt.Errorf("a raw block volume is staged there: %w", fault.Conflict)
	}
	return p, checkEncrypted(u, dev, p.at)
}

// clearDead unmounts the dead mounts that a removed disk left at path, so that the volume can be staged there on dev. Nothing
// that was written to them can reach a disk any more. If dev itself is not among the machine's disks, the list of disks is
// wrong, and it unmounts nothing. It returns the mount table afterwards.
func (s *Server) clearDead(ctx context.Context, dev *device.Device, path string) (*mount.Table, error) {
	for range maxLayers {
		table, err := s.mounts.Table()
		if err != nil {
			return nil, err
		}
		at, err := table.At(path, dev.Number())
		if err != nil {
			return nil, err
		}
		if at.Use != mount.Dead {
			return table, nil
		}
		if listed, err := s.sysfs.Alive(dev.Number()); err != nil || !listed {
			return table, err
		}
		s.deadMount(path)
		if err := s.mounts.Unmount(ctx, at); err != nil {
			return nil, fmt.Errorf("the mount of a disk that has gone is in the way: %w", err)
		}
		driver.LogOf(ctx).Warn("unmounted the dead mount of a removed disk to stage the volume again",
			zap.String("path", path), zap.String("source", at.Mount.Source))
	}
	return nil, fmt.Errorf("%s holds more than %d mounts of disks that have gone: %w", path, maxLayers, fault.Precondition)
}

// formatDisk makes the filesystem, or the header of an encrypted volume, on a blank disk that is not in use, and reports whether it
// has. For a raw block volume it makes nothing.
func (s *Server) formatDisk(call, work context.Context, dev *device.Device, u use) (made bool, err error) {
	if u.block && !u.context.LUKS {
		return false, s.prepareRaw(work, dev, u)
	}
	history, err := s.history(work, dev)
	if err != nil {
		return false, err
	}
	filesystem := u.filesystem
	if u.context.LUKS {
		filesystem = mounter.LUKS
	}
	begun, err := s.formatBegun(dev, filesystem)
	if err != nil {
		return false, err
	}
	req := format.Request{
		Volume:        u.volume,
		Filesystem:    filesystem,
		MkfsOptions:   u.context.MkfsOptions,
		Size:          u.context.Size,
		Forbidden:     u.readOnly || u.context.NeverFormat != "",
		HasContent:    s.mayHaveContent(u.context.Content),
		BlankCreated:  u.context.Content == driver.ContentBlank,
		FormatNonZero: u.context.FormatNonZero,
		History:       history,
		Begun:         begun,
		Begin: func(ctx context.Context) error {
			made = true
			if err := s.formats.Begin(dev, string(filesystem)); err != nil {
				return err
			}
			return s.written(ctx, dev)
		},
	}
	if u.context.LUKS {
		req.MkfsOptions = nil
		req.Encrypt = func(ctx context.Context, disk *os.File) error { return s.crypt.Format(ctx, disk, u.volume, u.key) }
	}
	if err := s.format(work, dev, u, req); err != nil {
		return false, err
	}
	// The record is removed before the first mount, because with it what a pod writes could be formatted over.
	if err := s.formats.End(u.volume); err != nil {
		return false, err
	}
	if u.context.LUKS && u.context.Content == driver.ContentCopy {
		if err := format.CheckOwnHeader(dev); err != nil {
			return false, err
		}
	}
	// The call may have ended, and kubelet may no longer want the pod.
	return made, call.Err()
}

// mayHaveContent reports whether a volume may have been in use before: a copy, or one that a PersistentVolume written by hand brings.
// Volumes of a vendor's driver have the same attributes as the latter, and are formatted at their first use.
func (s *Server) mayHaveContent(content string) bool {
	return content == driver.ContentCopy || content == driver.ContentUnknown && s.names.Vendor == nil
}

// prepareRaw checks the disk of a raw block volume without encryption and records that it is its user's.
func (s *Server) prepareRaw(ctx context.Context, dev *device.Device, u use) error {
	// A format opens the disk exclusively itself before it reads what is on it.
	if err := errors.Join(host.CheckUnused(ctx, dev.File(), dev.Number()), format.CheckPlain(dev)); err != nil {
		return err
	}
	if err := s.formats.End(u.volume); err != nil || u.readOnly {
		return err
	}
	return s.written(ctx, dev)
}

// format makes the requested filesystem, if the gate allows it.
func (s *Server) format(ctx context.Context, dev mounter.BlockDevice, u use, req format.Request) error {
	_, err := s.formatter.EnsureFormatted(ctx, dev, req)
	if err != nil && u.context.NeverFormat != "" {
		return fmt.Errorf("its attribute %s forbids formatting: %w", u.context.NeverFormat, err)
	}
	return err
}

// formatBegun returns what the format record of the volume proves of this device.
func (s *Server) formatBegun(dev *device.Device, filesystem mounter.Filesystem) (format.Begun, error) {
	switch onRecord, ofDevice, err := s.formats.Begun(dev, string(filesystem)); {
	case err != nil || !onRecord:
		return format.NotBegun, err
	case ofDevice:
		return format.BegunOnDevice, nil
	}
	return format.BegunBefore, nil
}

// written records that a device is about to be written.
func (s *Server) written(ctx context.Context, dev *device.Device) error {
	if s.markWritten == nil {
		return nil
	}
	return s.markWritten(ctx, dev)
}

// history returns what the resolver can prove about earlier writes to a device.
func (s *Server) history(ctx context.Context, dev *device.Device) (format.History, error) {
	if s.neverWritten == nil {
		return format.HistoryUnknown, nil
	}
	never, err := s.neverWritten(ctx, dev)
	if err != nil || !never {
		return format.Written, err
	}
	return format.NeverWritten, nil
}

// checkUnused refuses a device that something in this mount namespace uses, because a volume has one staging path, and a
// staging folder with files in it: they were written while no volume was mounted there, and a mount would hide them.
func (s *Server) checkUnused(table *mount.Table, dev *device.Device, staging string) error {
	used, err := table.Holders(dev.Number())
	if err != nil {
		return err
	}
	if len(used) > 0 {
		return fmt.Errorf("its device %s is in use at %s; unpublish and unstage there first: %w",
			dev.Path(), mount.ExplainHolders(used), fault.DeviceInUse.Explain(fault.Precondition))
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
