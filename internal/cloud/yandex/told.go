package yandex

import (
	"context"
	"fmt"
	"slices"
	"strings"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// told answers a request for a snapshot from what is there for it already, with a look and no write. None and no
// error: nothing was ever answered for it, as far as anybody can see.
//
// The snapshot that a request was answered with once is its snapshot for ever. external-snapshotter asks the same
// again and again until it is ready, keeps the first id and takes over only whether the answer is ready
// (updateSnapshotContentStatus in its pkg/sidecar-controller/snapshot_controller.go, v8.6.0). Another snapshot in
// place of one that the cloud has given up would make a backup look good that does not exist, and nobody would ever
// delete the other one. So the request is an error from then on, of a kind that is final there (isCSIFinalError):
// after one that is not, the sidecar would not let go of a VolumeSnapshot that its user deletes (shouldDelete). After
// this one it deletes the id that it knows. What the cloud has left of a snapshot stays until then, as the record of
// it, and one that this process has told nobody of is answered as it is, once: so whoever asks knows the id. A failure
// that is seen before the first answer is not tried again either: who else was told of it is not known.
//
// Where the cloud leaves nothing of a snapshot that it gave up, its idempotency key is the record for a process that
// has not seen that, for as long as the cloud knows the key. After that nothing is left to tell it by.
func (c *Cloud) told(ctx context.Context, req cloud.CreateSnapshotRequest) (*compute.Snapshot, error) {
	doing := fmt.Sprintf("create snapshot %q", req.Name)
	id := c.chains.madeAs(req.Name)
	snap, err := c.toldOf(ctx, req.Name, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", doing, err)
	case snap == nil && id == "":
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	case snap == nil:
		return nil, errLost(req.Name, id, nil)
	case snap.GetSourceDiskId() != string(req.Volume), snap.GetStatus() == compute.Snapshot_READY:
		return nil, fmt.Errorf("%s: an earlier call has made %s for it: %w", doing, snap.GetId(), fault.Conflict)
	case snap.GetStatus() != compute.Snapshot_CREATING && id != "":
		return nil, errLost(req.Name, id, nil)
	}
	c.chains.making(req.Name, snap.GetId())
	return snap, nil
}

// toldOf looks for the snapshot that a request was answered with: by the id if this process has done that, and
// otherwise, or where a look does not show it, by its name.
func (c *Cloud) toldOf(ctx context.Context, request, id string) (*compute.Snapshot, error) {
	if id != "" {
		snap, err := c.snapshot(ctx, cloud.SnapshotID(id))
		if fault.Of(err) != fault.NotFound {
			return snap, err
		}
	}
	same, err := c.snapshotsNamed(ctx, c.cloudName(request))
	if err != nil {
		return nil, err
	}
	same = slices.DeleteFunc(c.ours(request, same), func(s *compute.Snapshot) bool {
		return c.chains.deleted(s.GetId()) || id != "" && s.GetId() != id
	})
	switch len(same) {
	case 0:
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	case 1:
		return same[0], nil
	}
	return nil, errTwinSnapshots(request, same)
}

// ours returns those of some snapshots that were made for a request.
func (c *Cloud) ours(request string, of []*compute.Snapshot) []*compute.Snapshot {
	return slices.DeleteFunc(slices.Clone(of), func(s *compute.Snapshot) bool { return !c.madeFor(request, s.GetLabels()) })
}

// errLost is what a request is answered with whose snapshot will never be.
func errLost(request, id string, why error) error {
	err := fmt.Errorf("%w: snapshot %s, which was made for the request %q, is not there: the cloud has given it up, or somebody has deleted it; "+
		"a request never gets another snapshot: delete the VolumeSnapshot, and make a new one", fault.Precondition, id, request)
	if why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// errTwinSnapshots is what several snapshots of one request are answered with.
func errTwinSnapshots(request string, snaps []*compute.Snapshot) error {
	var ids []string
	for _, s := range snaps {
		ids = append(ids, s.GetId())
	}
	return fmt.Errorf("the snapshots %s were all made for the request %q, and it is not known which of them was handed out; "+
		"delete the one that no VolumeSnapshotContent has as its snapshotHandle: %w", strings.Join(ids, " and "), request, fault.Unavailable)
}
