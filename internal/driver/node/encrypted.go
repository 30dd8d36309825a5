package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/luks"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// checkEncrypted refuses a mount of an encryption mapping if the volume is not encrypted, and a mount of the disk if it is.
func checkEncrypted(u use, dev *device.Device, at mount.State) error {
	if at.Use != mount.Ours || u.context.LUKS == (at.Mount.Device != dev.Number()) {
		return nil
	}
	return fmt.Errorf("the volume is in use at %s with encryption: %t, which is not what its attributes say: %w",
		at.Path, !u.context.LUKS, fault.Conflict)
}

// clearMappings closes the mappings of an encrypted volume that is not staged: those with its name, on whatever device, and
// those on its disk. A stage never reuses a mapping of an earlier stage: opening the disk again proves the disk and the key.
//
// A mapping whose device node is bound somewhere stays open: a pod uses it, though dm-crypt does not count the bind, and the
// kernel would give its number to the next mapping.
func (s *Server) clearMappings(ctx context.Context, table *mount.Table, dev *device.Device, u use) error {
	if !u.context.LUKS {
		return nil
	}
	if u.key.Reveal() == "" {
		return fmt.Errorf("secrets: %s: missing, and the volume is encrypted with LUKS; set csi.storage.k8s.io/node-stage-secret-name "+
			"and -namespace in its class: %w", driver.SecretLUKS, fault.LUKSKey.Explain(fault.InvalidArgument))
	}
	if err := s.crypt.Check(); err != nil {
		return err
	}
	all, err := s.sysfs.Crypts()
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Name != luks.Name(u.volume) && !slices.Contains(c.Below, dev.Number()) {
			continue
		}
		used, err := table.Holders(c.Number)
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return fmt.Errorf("its encrypted mapping %s is in use at %s; unpublish and unstage there first: %w",
				c.Name, strings.Join(used, ", "), fault.Precondition)
		}
		if err := s.crypt.Close(ctx, c.Name); err != nil {
			return err
		}
	}
	return nil
}

// stageEncrypted opens the mapping on a disk that has a LUKS header, and formats, mounts or binds it.
func (s *Server) stageEncrypted(call, work context.Context, dev *device.Device, u use, p place) (err error) {
	switch p.at.Use {
	case mount.Free:
	case mount.Ours:
		mapping, err := s.crypt.Over(dev, p.at.Mount.Device)
		if err != nil {
			return err
		}
		if !u.readOnly {
			err = s.crypt.Grow(work, mapping, u.key)
		}
		if err != nil {
			// Never a kind that is final for the kubelet: it would forget that the volume is staged here.
			return errors.Join(fmt.Errorf("%w: it is staged and stays so, but does not grow: %w", fault.Unavailable, err), mapping.Close())
		}
		return errors.Join(s.put(work, mapping, u, p, false), mapping.Close())
	default:
		return p.at.NotOurs()
	}
	mapping, err := s.crypt.Open(call, dev, u.volume, u.key, luks.OpenOptions{
		Discard: slices.ContainsFunc(u.flags, isDiscard),
		// A filesystem that is mounted read-only still replays its journal, as on a disk.
		ReadOnly: u.readOnly && u.block,
	})
	if err != nil {
		return err
	}
	if err = s.formatInside(call, work, dev, mapping, u); err == nil {
		err = s.put(work, mapping, u, p, false)
	}
	if err = errors.Join(err, mapping.Close()); err == nil {
		return nil
	}
	if closeErr := s.crypt.Close(work, mapping.Name); closeErr != nil {
		// Never a kind that is final for the kubelet: it would let the disk be detached below the mapping.
		return fmt.Errorf("%w: %w (%w)", fault.Unavailable, err, closeErr)
	}
	return err
}

// isDiscard reports whether a mount option makes the filesystem discard what it frees.
func isDiscard(option string) bool {
	return option == "discard" || strings.HasPrefix(option, "discard=")
}

// formatInside makes the filesystem in the mapping, if the header records that no mkfs was ever completed there.
func (s *Server) formatInside(call, work context.Context, dev *device.Device, mapping *luks.Mapping, u use) error {
	unformatted, err := s.crypt.Unformatted(work, dev.File(), u.volume)
	if err != nil {
		return err
	}
	if !u.block {
		req := format.Request{
			Volume: u.volume, Filesystem: u.filesystem, MkfsOptions: u.context.MkfsOptions,
			Forbidden: u.readOnly || u.context.NeverFormat != "", Note: format.Formatted,
		}
		if unformatted {
			req.Note = format.Unformatted
		}
		if err := s.format(work, mapping, u, req); err != nil {
			return err
		}
	}
	if unformatted && !u.readOnly {
		// The token is removed before a pod can write, because with the token the next stage would format again. It is removed
		// even if the call has ended.
		if err := s.crypt.SetFormatted(work, dev.File()); err != nil {
			return err
		}
	}
	return call.Err()
}

// used returns the device of the volume that is mounted or bound at a path: its disk, or the encrypted mapping on that.
// The caller closes the disk and calls done.
func (s *Server) used(dev *device.Device, at mount.State) (_ mounter.BlockDevice, done func() error, err error) {
	if at.Mount.Device == dev.Number() {
		return dev, func() error { return nil }, nil
	}
	mapping, err := s.crypt.Over(dev, at.Mount.Device)
	if err != nil {
		return nil, nil, err
	}
	return mapping, mapping.Close, nil
}

// mappings returns the volume's encryption mappings: those with its name, even if their disk is gone. A vendor's driver names
// its mappings differently, so mappings that are staged at the volume's paths count too, and for a volume that is known to be
// encrypted those on the disk with this number.
func (s *Server) mappings(table *mount.Table, spec device.Spec, number uint64, paths ...string) ([]host.Crypt, error) {
	all, err := s.sysfs.Crypts()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var staged []uint64
	for _, path := range paths {
		at, err := table.At(path, 0)
		if err != nil {
			return nil, err
		}
		if at.Use != mount.Free {
			staged = append(staged, at.Mount.Device)
		}
	}
	return slices.DeleteFunc(all, func(c host.Crypt) bool {
		onDisk := spec.Encrypted && number != 0 && slices.Equal(c.Below, []uint64{number})
		return c.Name != luks.Name(spec.Volume) && !slices.Contains(staged, c.Number) && !onDisk
	}), nil
}
