package programs

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Snapshot is a snapshot of a volume.
type Snapshot struct {
	Name, ID string
	// SourceVolume is the id of the volume that it was made of.
	SourceVolume string
	// Size in bytes that a volume made from it needs at least.
	Size int64

	pair *Pair
}

// snapshotTick is how often a snapshot that is not ready is looked at again.
const snapshotTick = 50 * time.Millisecond

// Snapshot does what the snapshotter sidecar does: it creates a snapshot of the volume, and asks again
// until that is ready to use.
func (v *Volume) Snapshot(ctx context.Context, name string) (*Snapshot, error) {
	tick := time.NewTicker(snapshotTick)
	defer tick.Stop()
	for {
		answer, err := csi.NewControllerClient(v.pair.Controller.Conn).CreateSnapshot(ctx, &csi.CreateSnapshotRequest{
			SourceVolumeId: v.ID, Name: name,
		})
		if err != nil {
			return nil, err
		}
		if made := answer.GetSnapshot(); made.GetReadyToUse() {
			return &Snapshot{
				Name: name, ID: made.GetSnapshotId(), SourceVolume: made.GetSourceVolumeId(), Size: made.GetSizeBytes(), pair: v.pair,
			}, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("snapshot %s is not ready: %w", name, ctx.Err())
		}
	}
}

// Source names the snapshot as what a volume is restored from.
func (s *Snapshot) Source() *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.ID},
	}}
}

// Delete removes the snapshot.
func (s *Snapshot) Delete(ctx context.Context) error {
	_, err := csi.NewControllerClient(s.pair.Controller.Conn).DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: s.ID})
	return err
}
