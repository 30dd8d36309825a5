package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/lvm"
)

// group finds the volumes of one volume group, which are device-mapper devices. A volume is in use exactly as long as its device
// exists. The kernel reports its identity: a name that contains the volume's id, and a UUID that contains the volume group's.
type group struct {
	pool *lvm.Pool // nil: any, for Number
	// blank has the kernel's view of the devices.
	blank loop
}

var _ poolResolver = (*group)(nil)

// Open returns the device of a volume and makes it if there is none.
func (l *group) Open(ctx context.Context, spec Spec, id pool.ID) (*Device, error) {
	if err := l.pool.Activate(ctx, id); err != nil {
		return nil, err
	}
	return l.open(ctx, spec, id)
}

// Lookup returns the device of a volume if there is one.
func (l *group) Lookup(ctx context.Context, spec Spec, id pool.ID) (*Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.open(ctx, spec, id)
}

// open opens the device for reading and proves its identity. The kernel does not reuse its number while it is open.
func (l *group) open(ctx context.Context, spec Spec, id pool.ID) (*Device, error) {
	name, err := l.find(spec, id)
	if err != nil {
		return nil, err
	}
	f, err := l.blank.open(ctx, name, os.O_RDONLY, func(*os.File) error { return nil })
	if isGone(err) {
		return nil, errNoDevice(spec)
	}
	if err != nil {
		return nil, fmt.Errorf("open the device of volume %s: %w: %w", spec.Volume, fault.Unavailable, err)
	}
	dev, err := newDevice(f, f.Name(), spec, func(_ context.Context, d *Device) error {
		if !l.is(fmt.Sprintf("dm-%d", unix.Minor(d.number)), id) {
			return fmt.Errorf("%s is no longer the device of volume %s: %w", d.path, spec.Volume, fault.DeviceIdentity)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := dev.Verify(ctx); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

// find returns the kernel's name of a volume's device.
func (l *group) find(spec Spec, id pool.ID) (string, error) {
	disks, err := os.ReadDir(l.blank.sysDir)
	if err != nil {
		return "", fmt.Errorf("list block devices: %w: %w", fault.Unavailable, err)
	}
	found := ""
	for _, disk := range disks {
		if !strings.HasPrefix(disk.Name(), "dm-") || !l.is(disk.Name(), id) {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("%s and %s have the name of volume %s; one is of a foreign volume group: %w", found, disk.Name(), spec.Volume, fault.DeviceIdentity)
		}
		found = disk.Name()
	}
	if found == "" {
		return "", fmt.Errorf("volume %s is not active: %w", spec.Volume, fault.NotFound)
	}
	return found, nil
}

// is reports whether the kernel's device with this name is the volume's.
func (l *group) is(kernel string, id pool.ID) bool {
	name, err := readText(filepath.Join(l.blank.sysDir, kernel, "dm", "name"))
	if err != nil {
		return false
	}
	uuid, err := readText(filepath.Join(l.blank.sysDir, kernel, "dm", "uuid"))
	if err != nil {
		return false
	}
	if l.pool == nil {
		return lvm.MayBeDevice(id, name, uuid)
	}
	return l.pool.IsDevice(id, name, uuid)
}

// Number returns the number of a volume's device from sysfs, without opening it.
func (l *group) Number(spec Spec, id pool.ID) (uint64, error) {
	name, err := l.find(spec, id)
	if err != nil {
		return 0, err
	}
	number, err := l.blank.number(name)
	if err != nil {
		return 0, fmt.Errorf("volume %s: %w: %w", spec.Volume, fault.Unavailable, err)
	}
	return number, nil
}

// Release removes the device. fault.Busy while a program has it open or mounted.
func (l *group) Release(ctx context.Context, spec Spec, id pool.ID) error {
	busy := func(err error) bool { return errors.Is(err, fault.Busy) }
	err := untilReleased.Retry(ctx, busy, func() error { return l.pool.Deactivate(ctx, id) })
	if err != nil {
		return fmt.Errorf("release volume %s: %w", spec.Volume, err)
	}
	return nil
}

// Grow makes the volume and its device larger and returns the size. fault.OutOfRange when the pool has too little
// space; nothing changed.
func (l *group) Grow(ctx context.Context, spec Spec, id pool.ID, size int64) (int64, error) {
	grown, err := l.pool.Grow(ctx, id, size)
	if err != nil {
		return 0, err
	}
	dev, err := l.open(ctx, Spec{Volume: spec.Volume}, id)
	if errors.Is(err, fault.NotFound) {
		return grown, nil
	}
	if err != nil {
		return 0, err
	}
	now, err := dev.Size()
	if err == nil && now < grown { // an earlier growth was killed before the kernel was told
		err = l.pool.Activate(ctx, id)
	}
	return grown, errors.Join(err, dev.Close())
}

// NeverWritten reports whether nothing was written to the device since the pool zeroed it.
func (l *group) NeverWritten(ctx context.Context, _ *Device, id pool.ID) (bool, error) {
	return l.pool.NeverWritten(ctx, id)
}

// MarkWritten records that the device is about to be written.
func (l *group) MarkWritten(ctx context.Context, id pool.ID) error {
	return l.pool.MarkWritten(ctx, id)
}
