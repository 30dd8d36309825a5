package yandex

import (
	"cmp"
	"context"
	"maps"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

type snapshotService struct {
	compute.UnimplementedSnapshotServiceServer
	c *Cloud
}

// Get shows a snapshot.
func (s snapshotService) Get(ctx context.Context, ask *compute.GetSnapshotRequest) (*compute.Snapshot, error) {
	return snapshotShelf.get(ctx, s.c, ask.GetSnapshotId())
}

// List shows the snapshots of the folder.
func (s snapshotService) List(ctx context.Context, ask *compute.ListSnapshotsRequest) (*compute.ListSnapshotsResponse, error) {
	all, next, err := snapshotShelf.list(ctx, s.c, ask)
	return &compute.ListSnapshotsResponse{Snapshots: all, NextPageToken: next}, err
}

// ListOperations shows the operations of a snapshot, the newest first.
func (s snapshotService) ListOperations(ctx context.Context, ask *compute.ListSnapshotOperationsRequest) (*compute.ListSnapshotOperationsResponse, error) {
	operations, next, err := s.c.listOperations(ctx, "Snapshot", ask.GetSnapshotId(), ask)
	return &compute.ListSnapshotOperationsResponse{Operations: operations, NextPageToken: next}, err
}

// Create takes a snapshot: of what is on the disk now, to be used when it is READY.
func (s snapshotService) Create(ctx context.Context, ask *compute.CreateSnapshotRequest) (*operationpb.Operation, error) {
	c := s.c
	return c.change(ctx, func() (*job, *refusal) {
		made := snapshot{Snapshot: Snapshot{
			Name: ask.GetName(), Description: ask.GetDescription(), Labels: maps.Clone(ask.GetLabels()), Disk: ask.GetDiskId(),
			Status: statusCreating,
		}}
		d, why := c.maySnapshot(ask)
		if why != nil {
			return nil, why
		}
		made.ID = c.newID(snapshotPrefix, "snapshot", made.Name)
		made.DiskSize, made.Key, made.Content = d.Size, d.Key, d.Content
		return &job{
			kind: kindSnapshot, description: "Create snapshot", disk: d.ID, name: d.Name, snapshot: made.ID, lasts: c.lasts.Snapshot,
			claims:   []string{made.ID},
			metadata: &compute.CreateSnapshotMetadata{SnapshotId: made.ID, DiskId: d.ID},
			accept: func() error {
				if err := c.disks.Snapshot(data(d), made.ID); err != nil {
					return err
				}
				c.numbers++
				made.number, made.Created = c.numbers, c.clock.Now()
				c.putSnapshot(made)
				return nil
			},
			finish: func() proto.Message { return c.showSnapshot(c.setSnapshotStatus(made.ID, statusReady)) },
			fail: func() {
				if c.rules.FailedCreateVanishes {
					c.dropSnapshot(made.ID)
				} else {
					c.setSnapshotStatus(made.ID, statusError)
				}
			},
		}, nil
	})
}

func (c *Cloud) maySnapshot(ask *compute.CreateSnapshotRequest) (disk, *refusal) {
	if why := cmp.Or(
		c.checkFolder(ask.GetFolderId()), checkNaming(ask.GetName(), ask.GetDescription(), ask.GetLabels()),
	); why != nil {
		return disk{}, why
	}
	d, why := diskShelf.existing(c, ask.GetDiskId(), statusReady)
	if why != nil {
		return d, why
	}
	sameName := c.now.snapshotList(func(other snapshot) bool { return other.Name == ask.GetName() })
	if ask.GetName() != "" && len(sameName) > 0 && !c.rules.NamesRepeat {
		return d, nameTaken.with("Snapshot", ask.GetName())
	}
	return d, nil
}

func (c *Cloud) setSnapshotStatus(id, status string) snapshot {
	return c.changeSnapshot(id, func(s *snapshot) { s.Status = status })
}

// dropSnapshot removes a snapshot and its data.
func (c *Cloud) dropSnapshot(id string) {
	c.trouble("", c.disks.RemoveSnapshot(id))
	c.removeSnapshot(id)
}

// Delete removes a snapshot. Disks that were made from it stay.
func (s snapshotService) Delete(ctx context.Context, ask *compute.DeleteSnapshotRequest) (*operationpb.Operation, error) {
	c := s.c
	return c.change(ctx, func() (*job, *refusal) {
		found, why := snapshotShelf.existing(c, ask.GetSnapshotId(), statusReady, statusError)
		if why != nil {
			return nil, why
		}
		return &job{
			kind: kindDeleteSnapshot, description: "Delete snapshot", snapshot: found.ID, name: found.Name,
			lasts: c.lasts.DeleteSnapshot, claims: []string{found.ID},
			metadata: &compute.DeleteSnapshotMetadata{SnapshotId: found.ID},
			accept:   func() error { c.setSnapshotStatus(found.ID, statusDeleting); return nil },
			finish:   func() proto.Message { c.dropSnapshot(found.ID); return &emptypb.Empty{} },
			fail:     func() { c.setSnapshotStatus(found.ID, found.Status) },
		}, nil
	})
}
