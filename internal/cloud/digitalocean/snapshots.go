package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// maxSnapshots is the cloud's maximum number of snapshots of a volume.
const maxSnapshots = 25

// CreateSnapshot creates a snapshot of a volume.
func (c *Cloud) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	doing := fmt.Sprintf("create snapshot %q", req.Name)
	if err := c.CheckSnapshot(req); err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	words, err := c.userWords(req.Tags)
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	made, err := c.takeSnapshot(ctx, req.Volume, c.snapshotName(req.Name), words)
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	snap, err := c.snapshotOf(made)
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w: %w", doing, fault.Uncertain, err)
	}
	return snap, nil
}

// takeSnapshot creates a snapshot; fault.Conflict if the volume has one with the name. The documentation does not say that the cloud refuses
// a second one. If it does not, a request that is repeated much later, as by a snapshotter that was restarted before it stored the
// answer, would create another. An earlier repeat is refused by the rule of one snapshot in 10 minutes, so a stale list is harmless.
func (c *Cloud) takeSnapshot(ctx context.Context, id cloud.VolumeID, name string, words []string) (*snapshot, error) {
	of, err := c.snapshotsOf(ctx, id)
	if err != nil {
		return nil, err
	}
	if at := slices.IndexFunc(of, func(s snapshot) bool { return s.Name == name }); at >= 0 {
		return nil, fmt.Errorf("snapshot %s has the name %s: %w", of[at].ID, name, fault.Conflict)
	}
	made, err := c.snapshotOnce(ctx, id, name, words)
	if c.mayDropTags(err, words) {
		made, err = c.snapshotOnce(ctx, id, name, nil)
	}
	a := api.AnswerOf(err)
	switch {
	case err == nil:
		return made, nil
	case a != nil && a.Status == http.StatusTooManyRequests:
		return nil, fmt.Errorf("the cloud makes one snapshot of a volume in 10 minutes, and the last one is younger; it is tried again: %w: %w", fault.Precondition, a)
	case fault.Of(err) != fault.InvalidArgument || a == nil:
		return nil, tagsRefused(err, words)
	case len(of) >= maxSnapshots:
		return nil, fmt.Errorf("the volume has %d snapshots, the cloud keeps %d; delete some: %w: %w", len(of), maxSnapshots, fault.Quota, a)
	}
	return nil, fmt.Errorf("%w: %w", fault.Precondition, a)
}

// snapshotOnce sends one create of a snapshot.
func (c *Cloud) snapshotOnce(ctx context.Context, id cloud.VolumeID, name string, words []string) (*snapshot, error) {
	return ops.Run(ctx, c.ops, ops.Op[*snapshot]{
		Name: fmt.Sprintf("snapshot volume %s as %s", id, name), Kind: "snapshot", Object: "snapshot " + name, Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (*snapshot, string, error) {
			made, err := one(ctx, api.Call{Write: w, Has: []string{"snapshot"}}, func(ctx context.Context) (*snapshot, *godo.Response, error) {
				return c.sdk.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{VolumeID: string(id), Name: name, Description: description, Tags: words})
			})
			if err == nil && !objectID(made.ID) {
				err = fmt.Errorf("%w: the cloud's answer names no snapshot", fault.Uncertain)
			}
			return made, "", err
		},
	})
}

// DeleteSnapshot deletes a snapshot.
func (c *Cloud) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	return c.deleteSnapshot(ctx, id, budget.Write)
}

func (c *Cloud) deleteSnapshot(ctx context.Context, id cloud.SnapshotID, p budget.Priority) error {
	if !objectID(id) {
		return nil
	}
	_, err := ops.Run(ctx, c.ops, ops.Op[*snapshot]{
		Name: "delete snapshot " + string(id), Kind: "delete", Object: "snapshot " + string(id), Priority: p,
		Submit: func(ctx context.Context, w *ops.Write) (*snapshot, string, error) {
			err := c.generic(ctx, api.Call{Write: w, NoContent: true}, http.MethodDelete, volumeSnapshotsPath+string(id), nil)
			if api.NotFound(err) { // ids are never reused
				err = nil
			}
			return nil, "", err
		},
	})
	return err
}

// FindSnapshot returns the snapshot of a request.
func (c *Cloud) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	all, err := c.allSnapshots(ctx, budget.Read)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	wanted := c.snapshotName(name)
	at := slices.IndexFunc(all, func(s snapshot) bool { return s.Name == wanted })
	if at < 0 {
		return cloud.Snapshot{}, fmt.Errorf("find snapshot %q: %w", name, fault.NotFound)
	}
	return c.snapshotOf(&all[at])
}

// GetSnapshot returns the current state of a snapshot.
func (c *Cloud) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	if !objectID(id) {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %.80q: %w: no snapshot has such an id", id, fault.NotFound)
	}
	snap, err := c.readSnapshot(ctx, id)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	return c.snapshotOf(snap)
}

func (c *Cloud) readSnapshot(ctx context.Context, id cloud.SnapshotID) (*snapshot, error) {
	doing := "read snapshot " + string(id)
	var root struct {
		Snapshot snapshot `json:"snapshot"`
	}
	is := map[string]string{"snapshot.id": strconv.Quote(string(id))}
	err := c.generic(ctx, api.Call{Doing: doing, Priority: budget.Read, Is: is}, http.MethodGet, volumeSnapshotsPath+string(id), &root)
	switch {
	case err != nil:
		return nil, err
	case root.Snapshot.ResourceType != "volume":
		return nil, fmt.Errorf("%s: %w: it is none of a volume", doing, fault.NotFound)
	}
	return &root.Snapshot, nil
}

// ListSnapshots returns one page of all snapshots, or of one volume's.
func (c *Cloud) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	all := c.snapshotPages(budget.List)
	switch {
	case of != "" && !objectID(of):
		return cloud.SnapshotList{}, nil
	case of != "":
		all = c.snapshotPagesOf(of)
	}
	part, next, err := all.Listing("snapshots of "+c.cluster+" "+string(of), snapshotID).Part(ctx, page)
	if err != nil {
		return cloud.SnapshotList{}, fmt.Errorf("list snapshots: %w", err)
	}
	list := cloud.SnapshotList{Next: next}
	for i := range part {
		snap, err := c.snapshotOf(&part[i])
		if err != nil {
			return cloud.SnapshotList{}, err
		}
		list.Snapshots = append(list.Snapshots, snap)
	}
	return list, nil
}

// allSnapshots reads all snapshots of volumes that the token may see.
func (c *Cloud) allSnapshots(ctx context.Context, p budget.Priority) ([]snapshot, error) {
	return api.Complete(ctx, c.snapshotPages(p), snapshotID)
}

func (c *Cloud) snapshotPages(p budget.Priority) api.Pages[snapshot] {
	return pages(listOf[snapshot]{doing: "list snapshots", key: "snapshots", priority: p, call: c.sdk.Snapshots.ListVolume})
}

// snapshotsOf reads the snapshots of one volume. A volume that does not exist has none.
func (c *Cloud) snapshotsOf(ctx context.Context, id cloud.VolumeID) ([]snapshot, error) {
	return api.Complete(ctx, c.snapshotPagesOf(id), snapshotID)
}

func (c *Cloud) snapshotPagesOf(id cloud.VolumeID) api.Pages[snapshot] {
	all := pages(listOf[snapshot]{
		doing: "list the snapshots of volume " + string(id), key: "snapshots",
		call: func(ctx context.Context, opt *godo.ListOptions) ([]snapshot, *godo.Response, error) {
			return c.sdk.Storage.ListSnapshots(ctx, string(id), opt)
		},
	})
	return api.Pages[snapshot]{Largest: all.Largest, Read: func(ctx context.Context, number, size int) ([]snapshot, bool, error) {
		some, last, err := all.Read(ctx, number, size)
		if api.NotFound(err) {
			return nil, true, nil
		}
		return some, last, err
	}}
}

func snapshotID(s snapshot) string { return s.ID }

// snapshotOf returns a snapshot as a cloud.Snapshot. It has no status: every snapshot that the cloud shows can be restored.
func (c *Cloud) snapshotOf(s *snapshot) (cloud.Snapshot, error) {
	created, err := time.Parse(time.RFC3339, s.Created)
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %s: the cloud says that it was made at %q: %w", s.ID, s.Created, fault.Unavailable)
	}
	snap := cloud.Snapshot{
		ID:      cloud.SnapshotID(s.ID),
		Name:    s.Name,
		Volume:  cloud.VolumeID(s.ResourceID),
		Size:    cloud.Bytes(s.MinDiskSize) * cloud.GiB,
		Created: created,
		Ready:   true,
		Mark:    c.markOf(s),
	}
	if len(s.Regions) > 0 {
		snap.Zone = s.Regions[0]
	}
	return snap, nil
}
