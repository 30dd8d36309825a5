package pool

import (
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// From is the source of a new volume's content; the zero value means a blank volume.
type From struct {
	// At most one of the two is set.
	Volume, Snapshot ID
}

// Ref identifies the source.
func (f From) Ref() Ref {
	if f.Snapshot != "" {
		return SnapshotRef(f.Snapshot)
	}
	return VolumeRef(f.Volume)
}

// NewVolume is a request for a volume.
type NewVolume struct {
	// Name is unique within the pool.
	Name string
	// Size is rounded up to SizeStep, in a volume group to whole extents.
	Size int64
	// Limit is the maximum of the rounded size; 0: none.
	Limit int64
	// From is the source of the content. The size may be larger than the source's.
	From From
	Tags []Pair
}

// Record returns the first record of a new volume.
func (v NewVolume) Record() (Record, error) {
	size, err := RoundUp(v.Size)
	if err == nil {
		if nameErr := CheckObjectName(v.Name); nameErr != nil {
			err = fmt.Errorf("%w: %w", fault.InvalidArgument, nameErr)
		}
	}
	if err != nil {
		return Record{}, fmt.Errorf("create volume %q: %w", v.Name, err)
	}
	return Record{ID: NewID(), Name: v.Name, Size: size, State: Creating, Created: Now(), Tags: v.Tags}, nil
}

// BlocksRequest asks which parts of a snapshot have data, or with Base which may differ from another snapshot of the volume.
type BlocksRequest struct {
	Target ID
	// Base is empty, or the snapshot to compare with.
	Base ID
	// From is the first byte that is of interest.
	From int64
}

// Range is a part of a volume, in bytes.
type Range struct{ Start, Length int64 }

// Now returns the time with the precision of records.
func Now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// NewSnapshot is a request for a snapshot of a volume.
type NewSnapshot struct {
	// Name is unique among the snapshots of the pool.
	Name   string
	Volume ID
	Tags   []Pair
}

// Record returns the first record of a new snapshot.
func (req NewSnapshot) Record() (Record, error) {
	if err := CheckObjectName(req.Name); err != nil {
		return Record{}, fmt.Errorf("snapshot %.200q: %w: %w", req.Name, fault.InvalidArgument, err)
	}
	return Record{ID: NewID(), Name: req.Name, State: Creating, Created: Now(), Volume: req.Volume, Tags: req.Tags}, nil
}

// RoundUp rounds a size up to a multiple of SizeStep and refuses one outside the bounds.
func RoundUp(size int64) (int64, error) {
	if size < SmallestVolume || size > LargestVolume {
		return 0, fmt.Errorf("size %d is not between %d and %d: %w", size, SmallestVolume, LargestVolume, fault.OutOfRange)
	}
	return (size + SizeStep - 1) / SizeStep * SizeStep, nil
}
