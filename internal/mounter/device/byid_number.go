package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ByNumber opens the disk that has this device number, if it is a whole disk with an identity of its
// own, which the claim of the device then names. It does not prove that the disk is the volume: the
// caller knows that from what is mounted where.
func (b *ByID) ByNumber(ctx context.Context, volume string, number uint64) (*Device, error) {
	dir := fmt.Sprintf("%s/dev/block/%d:%d", b.sysDir, unix.Major(number), unix.Minor(number))
	target, err := os.Readlink(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("volume %s: %w: no disk has the number %d:%d", volume, fault.NotFound, unix.Major(number), unix.Minor(number))
	case err != nil:
		return nil, fmt.Errorf("volume %s: look for its disk: %w: %w", volume, fault.Unavailable, err)
	}
	kernel := filepath.Base(target)
	if !b.exists(kernel) {
		// The cloud's disks are used whole; a partition is of the machine itself.
		return nil, fmt.Errorf("volume %s: %w: %s is not a whole disk", volume, fault.NotFound, kernel)
	}
	id, err := readIdentity(b.sysDir, kernel)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w: device %s: %w", volume, fault.NotFound, kernel, err)
	}
	claim := Claim{Volume: volume}
	if len(id.serials) > 0 {
		claim.Serial = id.serials[0]
	} else {
		claim.Name = id.links[0] // a loop device has no serial
	}
	dev, err := b.Lookup(ctx, claim)
	if err == nil && dev.Number() != number {
		err = errors.Join(fmt.Errorf("volume %s: %w: another disk than %s says that it is %s%s",
			volume, fault.Precondition, kernel, claim.Name, claim.Serial), dev.Close())
	}
	if err != nil {
		return nil, err
	}
	return dev, nil
}
