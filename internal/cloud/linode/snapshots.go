package linode

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// noSnapshotsAdvice is for whoever asks for a snapshot all the same.
const noSnapshotsAdvice = "Linode has no snapshots of volumes; make a claim with the volume's claim as its dataSource instead, which copies it"

// noSnapshots says why there are none, and what there is instead.
type noSnapshots struct{ cloud.NoSnapshots }

// CreateSnapshot answers fault.Unsupported, and says what to do instead.
func (noSnapshots) CreateSnapshot(context.Context, cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	return cloud.Snapshot{}, fmt.Errorf("snapshots: %w: %s", fault.Unsupported, noSnapshotsAdvice)
}
