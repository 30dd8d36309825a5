package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// mostSnapshots is how many snapshots the cloud keeps of one volume.
const mostSnapshots = 25

// CreateSnapshot makes a snapshot of a volume.
func (c *Cloud) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	doing := fmt.Sprintf("create snapshot %q", req.Name)
	if err := checkSnapshot(req); err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	id := req.Volume
	words, err := c.owner.Words(req.Name, req.Tags, cloud.Source{})
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	made, err := c.takeSnapshot(ctx, id, c.cloudName(req.Name), words)
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s of volume %s: %w", doing, id, err)
	}
	snap, err := snapshotOf(made)
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w: %w", doing, fault.Uncertain, err)
	}
	return snap, nil
}

func checkSnapshot(req cloud.CreateSnapshotRequest) error {
	switch {
	case req.Name == "":
		return fmt.Errorf("it has no name: %w", fault.InvalidArgument)
	case !objectID(req.Volume):
		return fmt.Errorf("volume %.80q: %w: no volume has such an id", req.Volume, fault.NotFound)
	default:
		return nil
	}
}

// snapshotNameIsFree answers fault.Conflict where a snapshot of the volume has the name. That the cloud refuses a
// second one is not documented. Where it does not, a request that is repeated after a long while, as by a
// snapshotter that was restarted before it had written the answer down, would make another one; before that the rule
// of one snapshot in 10 minutes refuses, so a list that lags behind does no harm.
func (c *Cloud) snapshotNameIsFree(ctx context.Context, id cloud.VolumeID, name string) error {
	of, err := c.snapshotsOf(ctx, id)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(of, func(s godo.Snapshot) bool { return s.Name == name }); at >= 0 {
		return fmt.Errorf("snapshot %s has the name %s: %w", of[at].ID, name, fault.Conflict)
	}
	return nil
}

// takeSnapshot sends the write, unless the volume has a snapshot of the name.
//
// The rule of one snapshot in 10 minutes becomes fault.Precondition and not fault.Unavailable: the cloud
// has surely made nothing now, so the sidecar may forget the attempt once the name was looked for (an
// earlier answer may have been lost, and then the rule hides that the name is taken); it backs off on
// both kinds, and no layer in between repeats a Precondition at once.
func (c *Cloud) takeSnapshot(ctx context.Context, id cloud.VolumeID, name string, words []string) (*godo.Snapshot, error) {
	if err := c.snapshotNameIsFree(ctx, id, name); err != nil {
		return nil, err
	}
	made := make(chan *godo.Snapshot, 1)
	err := c.machines.Do(ctx, queue.Change{Send: func(ctx context.Context) error {
		return c.write(ctx, "snapshot "+name, "snapshot volume "+string(id), func(ctx context.Context) error {
			snap, _, err := c.api.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{
				VolumeID: string(id), Name: name, Description: "Created by cloudblock-csi", Tags: words,
			})
			if err == nil && (snap == nil || !objectID(snap.ID)) {
				err = fmt.Errorf("%w: the cloud's answer names no snapshot", fault.Uncertain)
			}
			if err == nil {
				made <- snap
			}
			return err
		})
	}})
	a := answerOf(err)
	switch {
	case err == nil:
		return <-made, nil
	case fault.Of(err) == fault.Precondition && a != nil && a.Status == http.StatusTooManyRequests:
		return nil, fmt.Errorf("the cloud makes one snapshot of a volume in 10 minutes, and the last one is younger; it is tried again: %w", err)
	case fault.Of(err) != fault.InvalidArgument || a == nil:
		return nil, err
	}
	of, listErr := c.snapshotsOf(ctx, id)
	if listErr == nil && len(of) >= mostSnapshots {
		return nil, fmt.Errorf("the volume has %d snapshots, the cloud keeps %d; delete some: %w: %w", len(of), mostSnapshots, fault.Exhausted, a)
	}
	return nil, fmt.Errorf("%w: %w", fault.Precondition, a)
}

// FindSnapshot returns the snapshot made under this request name.
func (c *Cloud) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	missing := fmt.Errorf("find snapshot %q: %w", name, fault.NotFound)
	if name == "" {
		return cloud.Snapshot{}, missing
	}
	all, err := c.allSnapshots(ctx, budget.Read)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	wanted := c.cloudName(name)
	all = slices.DeleteFunc(all, func(s godo.Snapshot) bool { return s.Name != wanted })
	at := slices.IndexFunc(all, func(s godo.Snapshot) bool { return c.owner.MadeFor(name, s.Tags) })
	switch {
	case at >= 0:
		return snapshotOf(&all[at])
	case len(all) > 0:
		return cloud.Snapshot{}, fmt.Errorf("find snapshot %q: %s has its name %s and was made for something else (see its tags): %w",
			name, all[0].ID, all[0].Name, fault.Conflict)
	default:
		return cloud.Snapshot{}, missing
	}
}

// GetSnapshot returns the present state of a snapshot.
func (c *Cloud) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	if !objectID(id) {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %.80q: %w: no snapshot has such an id", id, fault.NotFound)
	}
	snap, err := c.snapshot(ctx, id)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	return snapshotOf(snap)
}

func (c *Cloud) snapshot(ctx context.Context, id cloud.SnapshotID) (*godo.Snapshot, error) {
	snap, _, err := c.api.Snapshots.Get(budget.WithPriority(ctx, budget.Read), string(id))
	switch {
	case err != nil:
		return nil, readError("look at snapshot "+string(id), err)
	case snap == nil || snap.ID != string(id) || snap.ResourceType != "volume":
		return nil, fmt.Errorf("look at snapshot %s: %w: it is none of a volume", id, fault.NotFound)
	default:
		return snap, nil
	}
}

// DeleteSnapshot removes a snapshot.
func (c *Cloud) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	if !objectID(id) {
		return nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.machines.Do(ctx, queue.Change{Send: func(ctx context.Context) error {
		err := c.write(ctx, "snapshot "+string(id), "delete snapshot "+string(id), func(ctx context.Context) error {
			_, err := c.api.Storage.DeleteSnapshot(ctx, string(id))
			return err
		})
		if fault.Of(err) == fault.NotFound {
			return nil
		}
		return err
	}})
}

// allSnapshots reads all snapshots of volumes that the credentials see.
func (c *Cloud) allSnapshots(ctx context.Context, p budget.Priority) ([]godo.Snapshot, error) {
	all, err := remote.Complete(budget.WithPriority(ctx, p), paged(func(ctx context.Context, opts *godo.ListOptions) ([]godo.Snapshot, *godo.Response, error) {
		return c.api.Snapshots.ListVolume(ctx, opts)
	}), func(s godo.Snapshot) string { return s.ID })
	return all, readError("list snapshots", err)
}

// snapshotsOf reads the snapshots of one volume. A volume that does not exist has none.
func (c *Cloud) snapshotsOf(ctx context.Context, id cloud.VolumeID) ([]godo.Snapshot, error) {
	all, err := remote.Complete(budget.WithPriority(ctx, budget.Read), paged(func(ctx context.Context, opts *godo.ListOptions) ([]godo.Snapshot, *godo.Response, error) {
		return c.api.Storage.ListSnapshots(ctx, string(id), opts)
	}), func(s godo.Snapshot) string { return s.ID })
	if a := answerOf(err); a != nil && a.Status == http.StatusNotFound {
		return nil, nil
	}
	return all, readError("list the snapshots of volume "+string(id), err)
}
