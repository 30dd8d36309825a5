package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
)

// LoopConfig is where the kernel lists devices and mounts. Empty fields mean the usual places.
type LoopConfig struct {
	// SysDir is where the kernel lists block devices: /sys/block.
	SysDir string
	// DevDir is where the device nodes are: /dev.
	DevDir string
	// Mounts is the mount table of this process: /proc/self/mountinfo.
	Mounts string
}

// loop finds the volumes of one pool, which are files, and makes loop devices of them.
//
// A volume is in use exactly as long as its loop device exists. The kernel's descriptor of the file has a shared flock, which ends
// with the device and not with this process; the pool checks it before it deletes a volume. loop attaches and detaches under the
// pool's lock, because two loop devices of one file would be two caches of one disk.
type loop struct {
	pool   *files.Pool
	node   string
	sysDir string
	devDir string
	mounts string
	guard  *guard
}

// newLoop returns a loop without a pool.
func newLoop(node string, cfg LoopConfig) loop {
	return loop{
		node: node, guard: &guard{}, sysDir: cmp.Or(cfg.SysDir, "/sys/block"), devDir: cmp.Or(cfg.DevDir, "/dev"), mounts: cmp.Or(cfg.Mounts, host.MountTable),
	}
}

// Open returns the loop device of a volume and makes it if there is none. Before that it completes an interrupted growth and
// reserves space that the image has lost. It resets the settings of a device that exists, such as an offset that a pod has set.
// fault.NotFound when there is no such volume on this node.
func (l *loop) Open(ctx context.Context, spec Spec, id pool.ID) (*Device, error) {
	if err := l.checkSys(); err != nil {
		return nil, fmt.Errorf("volume %s: %w", spec.Volume, err)
	}
	if err := l.keepReserved(l.pool); err != nil {
		return nil, fmt.Errorf("volume %s: %w", spec.Volume, err)
	}
	// A device that hangs fails here, before the pool's lock.
	if f, err := l.find(ctx, id); err == nil {
		defer func() { _ = f.Close() }()
	} else if !errors.Is(err, errNoLoop) && !errors.Is(err, fault.NotFound) {
		return nil, err
	}
	var dev *Device
	err := l.pool.Use(ctx, id, func(image *os.File, r pool.Record) error {
		f, err := l.openOrAttach(ctx, id, image, r)
		if err != nil {
			return fmt.Errorf("volume %s: %w", spec.Volume, err)
		}
		if dev, err = l.device(f, spec, id); err != nil {
			return err
		}
		if err := dev.Verify(ctx); err != nil {
			return errors.Join(err, dev.Close())
		}
		return nil
	})
	return dev, err
}

// openOrAttach opens the loop device of an image and sets it up. The descriptor is for reading: what is open for writing can
// be mounted only where the kernel allows writes to mounted devices (bdev_allow_write_mounted, since Linux 6.8).
func (l *loop) openOrAttach(ctx context.Context, id pool.ID, image *os.File, r pool.Record) (*os.File, error) {
	f, err := l.find(ctx, id)
	if errors.Is(err, errNoLoop) {
		f, err = l.attach(ctx, image, r.BlockSize)
	}
	if err != nil {
		return nil, err
	}
	return l.prepare(ctx, f, r.Size)
}

// prepare is setUp within openBound. It closes f, but only after the other descriptor is set up: with autoclear the last close
// detaches the device.
func (l *loop) prepare(ctx context.Context, f *os.File, size int64) (*os.File, error) {
	defer func() { _ = f.Close() }()
	return l.open(ctx, filepath.Base(f.Name()), os.O_RDONLY, func(f *os.File) error { return l.setUp(f, size) })
}

// Lookup returns the loop device of a volume if there is one, open for reading. It changes nothing and accepts any settings of
// the device; Device.Verify refuses settings that hide a part of the volume.
func (l *loop) Lookup(ctx context.Context, spec Spec, id pool.ID) (*Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := l.find(ctx, id)
	if errors.Is(err, errNoLoop) {
		return nil, errNoDevice(spec)
	}
	if err != nil {
		return nil, err
	}
	dev, err := l.device(f, spec, id)
	if err != nil {
		return nil, err
	}
	if err := dev.checkSize(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

func errNoDevice(spec Spec) error {
	return fmt.Errorf("volume %s has no loop device now: %w", spec.Volume, fault.NotFound)
}

// Number returns the number of a volume's loop device from sysfs, without opening it.
func (l *loop) Number(spec Spec, id pool.ID) (uint64, error) {
	candidates, err := l.candidates(id)
	if err != nil {
		return 0, err
	}
	there := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return c.unlinked })
	if len(there) > 0 { // else an image that was removed, whose mounts are the volume's still
		candidates = there
	}
	switch len(candidates) {
	case 0:
		return 0, errNoDevice(spec)
	case 1:
		number, err := l.number(candidates[0].name)
		if isGone(err) {
			return 0, errNoDevice(spec)
		}
		if err != nil {
			return 0, fmt.Errorf("volume %s: %w: %w", spec.Volume, fault.Unavailable, err)
		}
		return number, nil
	}
	var names []string
	for _, c := range candidates {
		names = append(names, c.name)
	}
	return 0, fmt.Errorf("volume %s: the loop devices %s %w; detach those that this driver did not make with `losetup -d`: %w",
		spec.Volume, strings.Join(names, ", "), errSeveralLoops, fault.Precondition)
}

// errSeveralLoops: the names of files do not tell the volume's loop device from others, such as that of a copy in another folder.
var errSeveralLoops = errors.New("all have files with the name of its image")

// Release detaches the loop device, proves that it is detached, and reserves space that the image has lost meanwhile. fault.Busy
// while another program has the device open or mounted. Without a device or a volume it does nothing.
func (l *loop) Release(ctx context.Context, spec Spec, id pool.ID) error {
	if err := l.flush(ctx, id); err != nil {
		return fmt.Errorf("release volume %s: %w", spec.Volume, err)
	}
	var detached []string
	inUse := func(err error) bool { return errors.Is(err, errInUse) }
	err := untilReleased.Retry(ctx, inUse, func() error {
		return l.pool.Exclusively(ctx, func() (err error) {
			detached, err = l.detach(ctx, id)
			return err
		})
	})
	for _, name := range detached {
		// Not under the lock, because another program may probe the device for a moment.
		err = errors.Join(err, l.waitGone(ctx, name, id))
	}
	if err != nil {
		return fmt.Errorf("release volume %s: %w", spec.Volume, err)
	}
	// An error is only logged: the volume is released, and the next Open reserves the space or fails.
	_ = l.pool.Reserve(ctx, id)
	return nil
}

// Grow reserves space for a volume, then grows its image and its loop device, and returns its size. fault.OutOfRange when the pool
// has too little space; then nothing has changed.
func (l *loop) Grow(ctx context.Context, spec Spec, id pool.ID, size int64) (int64, error) {
	grown, err := l.pool.Grow(ctx, id, size)
	if err != nil {
		return 0, err
	}
	found, err := l.find(ctx, id)
	if errors.Is(err, errNoLoop) {
		return grown, nil
	}
	if err != nil {
		return 0, err
	}
	f, err := l.prepare(ctx, found, grown)
	if err != nil {
		return 0, fmt.Errorf("grow volume %s: %w", spec.Volume, err)
	}
	return grown, f.Close()
}

// MarkWritten does nothing: the extents of an image show what was written.
func (l *loop) MarkWritten(context.Context, pool.ID) error { return nil }

// NeverWritten reports whether the pool proves that no byte of the device was ever written. Then all of it reads as zeros.
func (l *loop) NeverWritten(ctx context.Context, d *Device, id pool.ID) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	// The image does not show writes that are only in the device's cache.
	if err := d.File().Sync(); err != nil {
		return false, fmt.Errorf("flush %s of volume %s: %w: %w", d.Path(), d.Spec().Volume, fault.Unavailable, err)
	}
	return l.pool.NeverWritten(id)
}

// parseHandle parses the volume id of a spec, which is untrusted, and checks that the name fits it.
func (l *loop) parseHandle(spec Spec) (pool.Handle, error) {
	h, err := pool.ParseHandle(spec.Volume)
	switch {
	case err != nil:
		return h, fmt.Errorf("volume %.200q is not on node %s: %w: %w", spec.Volume, l.node, fault.NotFound, err)
	case h.Node != l.node:
		return h, fmt.Errorf("volume %s is not on node %s: %w", spec.Volume, l.node, fault.NotFound)
	case spec.Name != "" && !pools.IsFileName(h.ID, spec.Name):
		return h, fmt.Errorf("volume %s cannot be the device that the request names: %w", spec.Volume, fault.DeviceIdentity)
	}
	return h, nil
}

// device wraps an open loop device and owns f from then on.
func (l *loop) device(f *os.File, spec Spec, id pool.ID) (*Device, error) {
	return newDevice(f, f.Name(), spec, func(_ context.Context, d *Device) error {
		return l.prove(d.file, id)
	})
}
