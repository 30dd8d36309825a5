package node

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
)

// occupant is what is mounted at a path, seen from one volume.
type occupant int

const (
	free    occupant = iota // nothing is mounted there
	ours                    // the volume's filesystem, or its device node
	dead                    // a filesystem or node of a disk that is no longer in this machine
	foreign                 // anything else
)

// place is the answer to what is mounted at a path.
type place struct {
	occupant occupant
	block    bool // a device node, not a filesystem
	mount    mounter.Mount
}

// look says what is mounted at a path. dev may be nil: the volume's device is not on this machine.
// Only device numbers are compared, never names: a name may have passed to another disk.
func (s *Server) look(path string, dev *device.Device) (place, error) {
	m, mounted, err := s.mounts.MountAt(path)
	if err != nil {
		return place{}, err
	}
	if !mounted {
		return place{}, nil
	}
	p := place{occupant: foreign, mount: m}
	number := m.Device
	if !isOurKind(m) {
		// Not a filesystem of ours, so it can only be the bind of a device node.
		if number, p.block, err = nodeNumber(path); err != nil {
			return place{}, err
		}
		if !p.block {
			return p, nil
		}
	}
	if dev != nil && number == dev.Number() {
		p.occupant = ours
	} else if !s.diskExists(number) {
		p.occupant = dead
		s.deadMount(path)
	}
	return p, nil
}

// isOurKind says whether a filesystem of a kind that we make is mounted.
func isOurKind(m mounter.Mount) bool {
	_, err := mounter.ParseFilesystem(m.Filesystem)
	return err == nil && m.Filesystem != ""
}

// nodeNumber returns the device number that the block device node at path stands for; 0, which no disk has, for the
// bind of a node that its folder lacks by now: its disk has gone, and another one may have the number.
func nodeNumber(path string) (number uint64, block bool, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, false, fmt.Errorf("look at %s: %w: %w", path, fault.Unavailable, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice {
		return 0, false, nil
	}
	if st.Nlink == 0 {
		return 0, true, nil
	}
	return st.Rdev, true, nil
}

// diskExists says whether the kernel has a block device of this number. The mount of a filesystem keeps its number
// from being given to another disk, so a number that is missing means that the disk was taken away.
func (s *Server) diskExists(number uint64) bool {
	major, minor := (number>>8)&0xfff|(number>>32)&^0xfff, number&0xff|(number>>12)&^0xff
	_, err := os.Stat(fmt.Sprintf("%s/dev/block/%d:%d", s.sysDir, major, minor))
	return !os.IsNotExist(err)
}

// clearDead unmounts what a disk that has gone left at path, so that the volume, whose disk is dev now, can be staged
// there again: nothing that was written to that mount can reach a disk any more. It does so only where that is
// sure. A btrfs that does not name its disk may have one, and where the volume's own disk is not listed, the list of
// disks cannot be trusted.
func (s *Server) clearDead(ctx context.Context, dev *device.Device, path string) error {
	for range mostLayers {
		at, err := s.look(path, dev)
		if err != nil || at.occupant != dead || at.mount.Filesystem == string(mounter.Btrfs) || !s.diskExists(dev.Number()) {
			return err
		}
		if err := s.mounts.UnmountTop(ctx, path); err != nil {
			return fmt.Errorf("the mount of a disk that has gone is in the way: %w", err)
		}
		driver.LogOf(ctx).Warn("unmounted what a disk that has gone left, to stage the volume's disk of now",
			zap.String("path", path), zap.String("source", at.mount.Source))
	}
	return nil // whoever looks next says what is there
}

// others returns the mount points that use the device, but for those in except.
func (s *Server) others(dev *device.Device, except ...string) ([]string, error) {
	holders, err := s.mounts.Holders(dev.Number())
	if err != nil {
		return nil, err
	}
	var list []string
	for _, h := range holders {
		skip := false
		for _, e := range except {
			skip = skip || h == e
		}
		if !skip {
			list = append(list, h)
		}
	}
	return list, nil
}
