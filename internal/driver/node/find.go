package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
)

// lookup finds the volume's device, by what was written down when it was staged if the claim says no
// more than its id, if it is on this machine now; nil, nil if it is not. An id that
// no volume can have stays an error: "nothing to undo" would be an answer to a question that makes
// no sense.
func (s *Server) lookup(ctx context.Context, claim device.Claim) (*device.Device, error) {
	if claim.Name == "" && claim.Serial == "" {
		if known, ok := s.records.Recall(claim.Volume); ok {
			claim.Name, claim.Serial = known.Name, known.Serial
		}
	}
	dev, err := s.devices.Lookup(ctx, claim)
	if errors.Is(err, fault.NotFound) && !errors.Is(err, fault.InvalidArgument) {
		return nil, nil //nolint:nilnil // "not there" is an answer here, and every caller asks for it
	}
	return dev, err
}

// find is lookup for calls that also name paths where the volume may be staged or published. Without a
// name, a serial and a record, as after a vendor's driver was replaced by this one with pods running,
// the disk that is mounted there is taken for the volume's, unless it is on record as another one's.
func (s *Server) find(ctx context.Context, claim device.Claim, paths ...string) (*device.Device, error) {
	dev, err := s.lookup(ctx, claim)
	if err != nil {
		return nil, err
	}
	_, known := s.records.Recall(claim.Volume)
	if dev != nil {
		if known || (claim.Name == "" && claim.Serial == "") {
			return dev, nil
		}
		// The caller alone says that it is this volume's.
		if err := s.checkUnclaimed(ctx, dev); err != nil {
			return nil, err
		}
		return dev, nil
	}
	if known || claim.Name != "" || claim.Serial != "" {
		return nil, nil //nolint:nilnil // its disk is known and is not here
	}
	for _, path := range paths {
		number, ok, err := s.diskAt(path)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		dev, err := s.devices.ByNumber(ctx, claim.Volume, number)
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

// diskAt returns the number of the block device whose filesystem or node is mounted at path.
func (s *Server) diskAt(path string) (number uint64, ok bool, err error) {
	at, mounted, err := s.mounts.MountAt(path)
	if err != nil || !mounted {
		return 0, false, err
	}
	if isOurKind(at) {
		return at.Device, true, nil
	}
	return nodeNumber(path)
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

// owners returns the other volumes that a device is on record as the disk of.
func (s *Server) owners(ctx context.Context, dev *device.Device) ([]string, error) {
	claims, err := s.records.Others(dev.Claim().Volume)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, claim := range claims {
		other, err := s.lookup(ctx, claim)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("whose disk is %s: %w: %w", dev.Path(), fault.Unavailable, ctx.Err())
		}
		if err != nil || other == nil {
			continue // whatever its name leads to now is not that volume's disk
		}
		if other.Number() == dev.Number() {
			found = append(found, claim.Volume)
		}
		if err := other.Close(); err != nil {
			return nil, err
		}
	}
	return found, nil
}
