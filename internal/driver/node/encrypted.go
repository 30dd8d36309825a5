package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/luks"
)

// stageKey returns the passphrase of an encrypted volume.
func stageKey(u use, secrets map[string]string) (driver.Secret, error) {
	key := driver.NewSecret(secrets[driver.SecretLUKS])
	if u.context.LUKS && key.Reveal() == "" {
		return key, fmt.Errorf("secrets: %s: missing, and volume %s is encrypted with LUKS; set csi.storage.k8s.io/node-stage-secret-name "+
			"and -namespace in its class: %w", driver.SecretLUKS, u.volume, fault.InvalidArgument)
	}
	return key, nil
}

// checkEncrypted refuses a mount of the volume that is encrypted where the volume is not, or the reverse.
func checkEncrypted(u use, dev *device.Device, at mounter.State) error {
	if at.Use != mounter.Ours || u.context.LUKS == (at.Mount.Device != dev.Number()) {
		return nil
	}
	return fmt.Errorf("the volume is in use at %s with encryption: %t, which is not what its attributes say: %w",
		at.Path, !u.context.LUKS, fault.Conflict)
}

// clearMappings closes the mappings of an encrypted volume that is not staged, whatever they stand on. A mapping that an
// earlier stage left is never used again: opening it anew proves the disk below it and the key.
func (s *Server) clearMappings(ctx context.Context, dev *device.Device, u use) error {
	if !u.context.LUKS {
		return nil
	}
	if err := luks.Check(); err != nil {
		return err
	}
	return s.crypt.Clear(ctx, u.volume, dev.Number())
}

// stageEncrypted stages what is behind the header, whose disk has one by now.
func (s *Server) stageEncrypted(call, work context.Context, dev *device.Device, u use, p place) (err error) {
	switch p.at.Use {
	case mounter.Free:
	case mounter.Ours:
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
		return errors.Join(s.put(work, mapping, u, p), mapping.Close())
	default:
		return p.at.NotOurs()
	}
	mapping, err := s.crypt.Open(work, dev, u.volume, u.key, luks.OpenOptions{
		Discard: slices.ContainsFunc(u.flags, isDiscard), ReadOnly: u.readOnly,
	})
	if err != nil {
		return err
	}
	if err = s.formatInside(call, work, dev, mapping, u); err == nil {
		err = s.put(work, mapping, u, p)
	}
	if err = errors.Join(err, mapping.Close()); err == nil {
		return nil
	}
	if closeErr := s.crypt.Close(work, mapping.Name); closeErr != nil {
		driver.LogOf(work).Warn("an encrypted mapping stays after a stage that failed", zap.Error(closeErr))
	}
	return err
}

// isDiscard reports whether a mount option makes the filesystem discard what it frees.
func isDiscard(option string) bool {
	return option == "discard" || strings.HasPrefix(option, "discard=")
}

// formatInside makes the filesystem behind the header, if the header says that none was ever completed there.
func (s *Server) formatInside(call, work context.Context, dev *device.Device, mapping *luks.Mapping, u use) error {
	unformatted, err := s.crypt.Unformatted(work, dev.File(), u.volume)
	if err != nil {
		return err
	}
	if !u.block {
		req := mounter.FormatRequest{
			Volume: u.volume, Filesystem: u.filesystem, MkfsOptions: u.context.MkfsOptions,
			Forbidden: u.readOnly || u.context.NeverFormat != "", Note: mounter.Formatted,
		}
		if unformatted {
			req.Note = mounter.Unformatted
		}
		if err := s.format(call, work, mapping, u, req); err != nil {
			return err
		}
	}
	if !unformatted || u.readOnly {
		return nil
	}
	// Before anything is written by a pod: with the token, what it writes would not count as data.
	return s.crypt.SetFormatted(work, dev.File())
}

// used returns the device of the volume that is mounted or bound at a path: its disk, or the encrypted mapping on that.
// The caller closes the disk and calls done.
func (s *Server) used(dev *device.Device, at mounter.State) (_ mounter.BlockDevice, done func() error, err error) {
	if at.Mount.Device == dev.Number() {
		return dev, func() error { return nil }, nil
	}
	mapping, err := s.crypt.Over(dev, at.Mount.Device)
	if err != nil {
		return nil, nil, err
	}
	return mapping, mapping.Close, nil
}

// mappings returns the names of the encrypted mappings that are the volume's: those of its name, whether their disk is
// here or not, and those that are staged at its paths, to which a vendor's driver gives other names.
func (s *Server) mappings(table *mounter.Table, volume string, paths ...string) ([]mounter.Crypt, error) {
	all, err := s.mounts.Crypts()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var staged []uint64
	for _, path := range paths {
		at, err := table.At(path, 0)
		if err != nil {
			return nil, err
		}
		if at.Use != mounter.Free {
			staged = append(staged, at.Mount.Device)
		}
	}
	return slices.DeleteFunc(all, func(c mounter.Crypt) bool {
		return c.Name != luks.Name(volume) && !slices.Contains(staged, c.Number)
	}), nil
}
