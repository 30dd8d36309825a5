package cloud

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// NoSnapshots is embedded by a backend whose cloud has no snapshots: every method answers
// fault.Unsupported.
type NoSnapshots struct{}

var _ Snapshots = NoSnapshots{}

var errNoSnapshots = fmt.Errorf("snapshots: %w", fault.Unsupported)

// CreateSnapshots answers fault.Unsupported.
func (NoSnapshots) CreateSnapshots(context.Context, CreateSnapshotsRequest) ([]Snapshot, error) {
	return nil, errNoSnapshots
}

// FindSnapshots answers fault.Unsupported.
func (NoSnapshots) FindSnapshots(context.Context, string) ([]Snapshot, error) {
	return nil, errNoSnapshots
}

// GetSnapshot answers fault.Unsupported.
func (NoSnapshots) GetSnapshot(context.Context, SnapshotID) (Snapshot, error) {
	return Snapshot{}, errNoSnapshots
}

// DeleteSnapshot answers fault.Unsupported.
func (NoSnapshots) DeleteSnapshot(context.Context, SnapshotID) error { return errNoSnapshots }

// ListSnapshots answers fault.Unsupported.
func (NoSnapshots) ListSnapshots(context.Context, VolumeID, Page) (SnapshotList, error) {
	return SnapshotList{}, errNoSnapshots
}
