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

// CreateSnapshot answers fault.Unsupported.
func (NoSnapshots) CreateSnapshot(context.Context, CreateSnapshotRequest) (Snapshot, error) {
	return Snapshot{}, errNoSnapshots
}

// FindSnapshot answers fault.Unsupported.
func (NoSnapshots) FindSnapshot(context.Context, string) (Snapshot, error) {
	return Snapshot{}, errNoSnapshots
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
