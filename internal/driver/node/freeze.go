package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
)

// FreezeRequest says which volume's filesystem to freeze and when it must be thawed at the latest.
type FreezeRequest struct {
	Volume string
	For    time.Duration
	// Answer is a file to remove before the thaw; see mounter.FreezeRequest.
	Answer string
	// Begin is called before anything is frozen, and keeps that from happening when it fails.
	Begin func() error
}

// Frozen is a volume whose filesystem is frozen. Nothing stages, unstages or grows it meanwhile.
type Frozen struct {
	*mounter.Frozen
	release func()
}

// Thaw ends the freeze.
func (f *Frozen) Thaw() error {
	defer f.release()
	return f.Frozen.Thaw()
}

// busyTick is how often a volume that another call works on is looked at again.
const busyTick = 20 * time.Millisecond

// Freeze freezes the filesystem of a volume that is staged here. fault.Precondition when there is no
// filesystem of it to freeze. It waits for another call that works on the volume until ctx ends.
func (s *Server) Freeze(ctx context.Context, req FreezeRequest) (*Frozen, error) {
	release, err := s.claimWithin(ctx, "freeze volume "+req.Volume, sharedVolume(req.Volume))
	if err != nil {
		return nil, err
	}
	frozen, err := s.freeze(ctx, req)
	if err != nil {
		release()
		return nil, fmt.Errorf("freeze volume %s: %w", req.Volume, err)
	}
	return &Frozen{Frozen: frozen, release: release}, nil
}

func (s *Server) claimWithin(ctx context.Context, what string, key lockKey) (release func(), err error) {
	tick := time.NewTicker(busyTick)
	defer tick.Stop()
	for {
		if release, err = s.locks.claim(what, key); err == nil || !errors.Is(err, fault.Busy) {
			return release, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (s *Server) freeze(ctx context.Context, req FreezeRequest) (frozen *mounter.Frozen, err error) {
	dev, path, err := s.stagedAt(ctx, req.Volume)
	if err != nil {
		return nil, err
	}
	if dev == nil {
		return nil, fmt.Errorf("it is not staged here: %w", fault.Precondition)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if path == "" {
		// Whoever asked may go on without a freeze. Then at least what was written before is in it.
		return nil, errors.Join(fmt.Errorf("no filesystem of it is mounted here, and a raw block device cannot be frozen: %w", fault.Precondition),
			dev.File().Sync())
	}
	if err := req.Begin(); err != nil {
		return nil, err
	}
	return s.mounts.Freeze(ctx, dev, mounter.FreezeRequest{Mountpoint: path, For: req.For, Answer: req.Answer, Keep: s.keep})
}

// ThawLeft thaws a volume that an earlier node program had frozen when it was killed. A volume that is
// not staged, or not frozen, is no error.
func (s *Server) ThawLeft(ctx context.Context, volume string) error {
	dev, path, err := s.stagedAt(ctx, volume)
	if err != nil || dev == nil {
		return err
	}
	if path != "" {
		err = s.mounts.ThawLeft(dev, path)
	}
	if err = errors.Join(err, dev.Close()); err != nil {
		return fmt.Errorf("thaw volume %s: %w", volume, err)
	}
	return nil
}

// stagedAt returns the volume's device, nil if it is not on this machine, and the oldest mount of its
// filesystem, which is the staging path, if there is one. The caller closes the device.
func (s *Server) stagedAt(ctx context.Context, volume string, paths ...string) (*device.Device, string, error) {
	dev, err := s.find(ctx, device.Claim{Volume: volume}, paths...)
	if err != nil || dev == nil {
		return nil, "", err
	}
	holders, err := s.mounts.Holders(dev.Number())
	for _, path := range holders {
		var at place
		if at, err = s.look(path, dev); err != nil {
			break
		}
		if at.occupant == ours && !at.block {
			return dev, path, nil
		}
	}
	if err != nil {
		return nil, "", errors.Join(err, dev.Close())
	}
	return dev, "", nil
}
