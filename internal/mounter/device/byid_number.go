package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
)

// Number returns the number of the disk of the spec by its link and what sysfs says, without opening any disk.
func (b *ByID) Number(ctx context.Context, spec Spec) (uint64, error) {
	if err := checkName(spec.Name); err != nil {
		return 0, err
	}
	kernel, _, err := b.find(ctx, spec)
	if err != nil {
		return 0, fmt.Errorf("find the device of volume %s: %w", spec.Volume, err)
	}
	text, err := readText(filepath.Join(b.sysDir, "block", kernel, "dev"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("find the device of volume %s: %w: %s has gone", spec.Volume, fault.NotFound, kernel)
	}
	var number uint64
	if err == nil {
		number, err = host.DeviceNumber(text)
	}
	if err != nil {
		return 0, fmt.Errorf("find the device of volume %s: %w: %w", spec.Volume, fault.Unavailable, err)
	}
	return number, nil
}

// ByNumber opens the disk that has this device number, if it is a whole disk with an identity of its
// own, which the spec of the device then names. It does not prove that the disk is the volume: the
// caller knows that from what is mounted where.
func (b *ByID) ByNumber(ctx context.Context, volume string, number uint64) (*Device, error) {
	dir := fmt.Sprintf("%s/dev/block/%d:%d", b.sysDir, unix.Major(number), unix.Minor(number))
	target, err := os.Readlink(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("volume %s: %w: no disk has the number %d:%d", volume, fault.NotFound, unix.Major(number), unix.Minor(number))
	case err != nil:
		return nil, fmt.Errorf("volume %s: find its disk: %w: %w", volume, fault.Unavailable, err)
	}
	kernel := filepath.Base(target)
	if !b.exists(kernel) {
		// The cloud's disks are used whole; a partition is of the machine itself.
		return nil, fmt.Errorf("volume %s: %w: %s is not a whole disk", volume, fault.NotFound, kernel)
	}
	id, err := b.identity(ctx, kernel)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w: device %s: %w", volume, fault.NotFound, kernel, err)
	}
	spec := Spec{Volume: volume}
	if len(id.serials) > 0 {
		spec.Serial = id.serials[0]
	} else {
		spec.Name = id.links[0] // a loop device has no serial
	}
	dev, err := b.Lookup(ctx, spec)
	if err == nil && dev.Number() != number {
		err = errors.Join(fmt.Errorf("volume %s: %w: another disk than %s has the identity %s%s",
			volume, fault.DeviceIdentity, kernel, spec.Name, spec.Serial), dev.Close())
	}
	if err != nil {
		return nil, err
	}
	return dev, nil
}
