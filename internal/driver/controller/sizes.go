package controller

import (
	"fmt"
	"math"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// checkRange accepts a consistent capacity range, and a missing one.
func checkRange(r *csi.CapacityRange) error {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case r == nil:
		return nil
	case required < 0:
		return fmt.Errorf("capacity_range.required_bytes: %d is negative: %w", required, fault.InvalidArgument)
	case limit < 0:
		return fmt.Errorf("capacity_range.limit_bytes: %d is negative: %w", limit, fault.InvalidArgument)
	case required == 0 && limit == 0:
		return fmt.Errorf("capacity_range: neither required_bytes nor limit_bytes is set: %w", fault.InvalidArgument)
	case limit > 0 && limit < required:
		return fmt.Errorf("capacity_range.limit_bytes: %d is less than required_bytes %d: %w", limit, required, fault.OutOfRange)
	}
	return nil
}

// The minimum sizes that a node can format: mkfs.xfs refuses a smaller disk, and the node a smaller one with a LUKS header.
const (
	smallestXFS       = 300 * cloud.MiB
	smallestEncrypted = 64 * cloud.MiB
	luksHeader        = 16 * cloud.MiB
)

// smallest returns the minimum size of a volume with these capabilities; 0 if every disk can be formatted.
func (p *volumeParameters) smallest(list []*csi.VolumeCapability) cloud.Bytes {
	xfs := slices.ContainsFunc(list, func(c *csi.VolumeCapability) bool { return c.GetMount().GetFsType() == "xfs" })
	switch {
	case xfs && p.luks:
		return smallestXFS + luksHeader
	case xfs:
		return smallestXFS
	case p.luks:
		return smallestEncrypted
	}
	return 0
}

// sizeWithin returns the smallest size of this cloud that satisfies the range. A range without required bytes gets the preferred
// size, or less if the limit requires it.
func sizeWithin(r *csi.CapacityRange, preferred cloud.Bytes, caps cloud.Capabilities) (cloud.Bytes, error) {
	if err := checkRange(r); err != nil {
		return 0, err
	}
	required, limit := cloud.Bytes(r.GetRequiredBytes()), cloud.Bytes(r.GetLimitBytes())
	atLeast := max(required, caps.SmallestVolume)
	if required == 0 {
		atLeast = max(preferred, caps.SmallestVolume)
		if limit > 0 {
			atLeast = max(min(atLeast, limit/caps.SizeStep*caps.SizeStep), caps.SmallestVolume)
		}
	}
	size, ok := roundUp(atLeast, caps.SizeStep)
	switch {
	case !ok || size > caps.LargestVolume:
		return 0, fmt.Errorf("capacity_range.required_bytes: %d is more than the largest volume, %s: %w",
			int64(atLeast), caps.LargestVolume, fault.OutOfRange)
	case limit > 0 && size > limit:
		return 0, fmt.Errorf("capacity_range.limit_bytes: %d is less than %s, the smallest size that fits (sizes are multiples of %s, at least %s): %w",
			int64(limit), size, caps.SizeStep, caps.SmallestVolume, fault.OutOfRange)
	}
	return size, nil
}

// roundUp returns the next multiple of the step; false if it exceeds an int64.
func roundUp(size, step cloud.Bytes) (cloud.Bytes, bool) {
	rest := size % step
	if rest == 0 {
		return size, true
	}
	if size > math.MaxInt64-(step-rest) {
		return 0, false
	}
	return size + step - rest, true
}
