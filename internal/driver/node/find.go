package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
)

// recorded fills in which disk a volume is, from what was recorded when it was staged, if the claim has no more than its
// id. known reports whether there is a record.
func (s *Server) recorded(claim device.Claim) (_ device.Claim, known bool) {
	record, known := s.records.Recall(claim.Volume)
	claim.Encrypted = claim.Encrypted || record.Encrypted
	if known && claim.Name == "" && claim.Serial == "" {
		claim.Name, claim.Serial = record.Name, record.Serial
	}
	return claim, known
}

// lookup finds the volume's device if it is on this machine now; nil, nil if it is not. An id that no volume can have
// stays an error.
func (s *Server) lookup(ctx context.Context, claim device.Claim) (*device.Device, error) {
	claim, _ = s.recorded(claim)
	dev, err := s.devices.Lookup(ctx, claim)
	if errors.Is(err, fault.NotFound) && !errors.Is(err, fault.InvalidArgument) {
		return nil, nil //nolint:nilnil // "not there" is an answer here, and every caller asks for it
	}
	return dev, err
}

// find is lookup for calls that also name paths where the volume may be staged or published.
func (s *Server) find(ctx context.Context, table *mounter.Table, claim device.Claim, paths ...string) (*device.Device, error) {
	dev, err := s.lookup(ctx, claim)
	if err != nil {
		return nil, err
	}
	full, known := s.recorded(claim)
	switch {
	case dev == nil && !known && full.Name == "" && full.Serial == "":
		return s.mountedAt(ctx, table, claim.Volume, paths...)
	case dev == nil || known || (claim.Name == "" && claim.Serial == ""):
		return dev, nil
	}
	// Only the request says that the disk is this volume's.
	if err := s.checkUnclaimed(ctx, dev); err != nil {
		return nil, err
	}
	return dev, nil
}

// mountedAt finds the disk of a volume without a name, a serial and a record, as after a vendor's driver was replaced by
// this one with pods running: the disk that is mounted at its paths, unless that is on record as another volume's.
func (s *Server) mountedAt(ctx context.Context, table *mounter.Table, volume string, paths ...string) (*device.Device, error) {
	for _, path := range paths {
		at, err := table.At(path, 0)
		if err != nil {
			return nil, err
		}
		if at.Use == mounter.Free {
			continue
		}
		number, err := s.mounts.DiskOf(at.Mount.Device)
		if err != nil {
			return nil, err
		}
		dev, err := s.devices.ByNumber(ctx, volume, number)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err == nil {
			err = s.checkUnclaimed(ctx, dev)
		}
		if err != nil {
			return nil, err
		}
		return dev, nil
	}
	return nil, nil //nolint:nilnil // as in lookup
}

// identify returns which disk a volume is and the number of its device; 0 if it is not on this machine. It proves
// nothing and opens no device that is on record: what is mounted is compared by number, and a volume whose device can no
// longer be proven has to be unpublished and unstaged all the same.
func (s *Server) identify(ctx context.Context, table *mounter.Table, volume string, paths ...string) (device.Claim, uint64, error) {
	claim, known := s.recorded(device.Claim{Volume: volume})
	number, err := s.devices.Number(ctx, claim)
	if err == nil || !errors.Is(err, fault.NotFound) || errors.Is(err, fault.InvalidArgument) {
		return claim, number, err
	}
	if known {
		return claim, 0, nil
	}
	dev, err := s.mountedAt(ctx, table, volume, paths...)
	if err != nil || dev == nil {
		return claim, 0, err
	}
	return dev.Claim(), dev.Number(), dev.Close()
}

// checkUnclaimed closes and refuses a device that is on record as another volume's.
func (s *Server) checkUnclaimed(ctx context.Context, dev *device.Device) error {
	owners, err := s.owners(ctx, dev)
	if err == nil && len(owners) > 0 {
		err = fmt.Errorf("%s is the disk of volume %s: %w", dev.Path(), owners[0], fault.Precondition)
	}
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	return nil
}

// owners returns the other volumes that a device is on record as the disk of. It opens none of their devices: one that
// hangs must not keep this volume from its calls.
func (s *Server) owners(ctx context.Context, dev *device.Device) ([]string, error) {
	claims, err := s.records.Others(dev.Claim().Volume)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, claim := range claims {
		number, err := s.devices.Number(ctx, claim)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("whose disk is %s: %w: %w", dev.Path(), fault.Unavailable, ctx.Err())
		}
		// With an error, whatever its name leads to now is not that volume's disk.
		if err == nil && number == dev.Number() {
			found = append(found, claim.Volume)
		}
	}
	return found, nil
}
