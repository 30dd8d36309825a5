package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// recorded completes a spec that has only the volume's id with the disk and the place that were recorded when the volume was staged.
// known reports whether there is a record.
func (s *Server) recorded(spec device.Spec) (_ device.Spec, known bool) {
	record, known := s.records.Recall(spec.Volume)
	spec.Encrypted = spec.Encrypted || record.Encrypted
	spec.Place = cmp.Or(spec.Place, record.Place)
	if known && spec.Name == "" && spec.Serial == "" {
		spec.Name, spec.Serial = record.Name, record.Serial
	}
	return spec, known
}

// lookup finds the volume's device; nil, nil if it is not on this machine. A malformed id is an error.
func (s *Server) lookup(ctx context.Context, spec device.Spec) (*device.Device, error) {
	spec, _ = s.recorded(spec)
	dev, err := s.devices.Lookup(ctx, spec)
	if errors.Is(err, fault.NotFound) && !errors.Is(err, fault.InvalidArgument) {
		return nil, nil //nolint:nilnil // "not there" is an answer here, and every caller asks for it
	}
	return dev, err
}

// find is lookup for calls that also name paths where the volume may be staged or published.
func (s *Server) find(ctx context.Context, table *mount.Table, spec device.Spec, paths ...string) (*device.Device, error) {
	dev, err := s.lookup(ctx, spec)
	if err != nil {
		return nil, err
	}
	full, known := s.recorded(spec)
	switch {
	case dev == nil && !known && full.Name == "" && full.Serial == "":
		return s.mountedAt(ctx, table, spec.Volume, paths...)
	case dev == nil || known || (spec.Name == "" && spec.Serial == ""):
		return dev, nil
	}
	// Nothing but the request links this disk to the volume.
	if err := s.checkUnowned(ctx, dev); err != nil {
		return nil, err
	}
	return dev, nil
}

// mountedAt finds the disk of a volume that has no name, serial or record, as after this driver has replaced a vendor's with
// pods running. It is the disk that is mounted at the volume's paths, unless that is recorded as another volume's.
func (s *Server) mountedAt(ctx context.Context, table *mount.Table, volume string, paths ...string) (*device.Device, error) {
	for _, path := range paths {
		at, err := table.At(path, 0)
		if err != nil {
			return nil, err
		}
		if at.Use == mount.Free {
			continue
		}
		number, err := s.sysfs.DiskOf(at.Mount.Device)
		if err != nil {
			return nil, err
		}
		dev, err := s.devices.ByNumber(ctx, volume, number)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err == nil {
			err = s.checkUnowned(ctx, dev)
		}
		if err != nil {
			return nil, err
		}
		return dev, nil
	}
	return nil, nil //nolint:nilnil // as in lookup
}

// identify returns the volume's recorded disk and its device number; 0: it is not on this machine. It compares numbers and
// opens no recorded device, so a volume whose disk hangs, or whose identity can no longer be proven, can still be unpublished
// and unstaged.
func (s *Server) identify(ctx context.Context, table *mount.Table, volume string, paths ...string) (device.Spec, uint64, error) {
	spec, known := s.recorded(device.Spec{Volume: volume})
	number, err := s.devices.Number(ctx, spec)
	if err == nil || !errors.Is(err, fault.NotFound) || errors.Is(err, fault.InvalidArgument) {
		return spec, number, err
	}
	if known {
		return spec, 0, nil
	}
	dev, err := s.mountedAt(ctx, table, volume, paths...)
	if err != nil || dev == nil {
		return spec, 0, err
	}
	return dev.Spec(), dev.Number(), dev.Close()
}

// checkUnowned closes and refuses a device that is recorded as another volume's.
func (s *Server) checkUnowned(ctx context.Context, dev *device.Device) error {
	owners, err := s.owners(ctx, dev)
	if err == nil && len(owners) > 0 {
		err = fmt.Errorf("%s is the disk of volume %s: %w", dev.Path(), owners[0], fault.Precondition)
	}
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	return nil
}

// owners returns the other volumes that have this device in their records. It opens none of their devices, because one may
// hang, and that must not block this volume.
func (s *Server) owners(ctx context.Context, dev *device.Device) ([]string, error) {
	specs, err := s.records.Others(dev.Spec().Volume)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, spec := range specs {
		number, err := s.devices.Number(ctx, spec)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("whose disk is %s: %w: %w", dev.Path(), fault.Unavailable, ctx.Err())
		}
		// With an error, whatever its name leads to now is not that volume's disk.
		if err == nil && number == dev.Number() {
			found = append(found, spec.Volume)
		}
	}
	return found, nil
}
