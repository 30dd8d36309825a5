package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

var errNoSnapshots = fmt.Errorf("snapshots: %w", fault.Unsupported)

// CreateSnapshot returns at once; the snapshot is ready after Config.OperationTime.
func (c *Cloud) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	a := c.account
	switch {
	case !a.cfg.Capabilities.Snapshots:
		return cloud.Snapshot{}, errNoSnapshots
	case req.Name == "":
		return cloud.Snapshot{}, fmt.Errorf("create snapshot of %s: %w: the name is empty", req.Volume, fault.InvalidArgument)
	}
	f, err := a.begin(ctx, CallCreateSnapshot)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	var snap snapshot
	a.mu.Lock()
	err = a.change(func(s state) (err error) {
		snap, err = c.snapshot(s, req)
		return err
	})
	a.mu.Unlock()
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("create snapshot %q: %w", req.Name, err)
	}
	if err := f.end(ctx, CallCreateSnapshot, true); err != nil {
		return cloud.Snapshot{}, err
	}
	return snap.out(), nil
}

// snapshot adds a snapshot to the state.
func (c *Cloud) snapshot(s state, req cloud.CreateSnapshotRequest) (snapshot, error) {
	if _, taken := c.snapshotNamed(s, req.Name); taken {
		return snapshot{}, fmt.Errorf("%w: the name is taken", fault.Conflict)
	}
	vol, err := s.volume(req.Volume)
	if err != nil {
		return snapshot{}, err
	}
	n, now := c.account.number(), time.Now()
	snap := snapshot{
		Snapshot: cloud.Snapshot{
			ID: cloud.SnapshotID(fmt.Sprintf("snap-%08x", n)), Name: req.Name,
			Volume: vol.ID, Size: vol.Size, Created: now,
		},
		number: n, cluster: c.cluster, zone: vol.Zone, ready: now.Add(c.account.cfg.OperationTime),
	}
	s.snapshots[snap.ID] = snap
	return snap, nil
}

func (c *Cloud) snapshotNamed(s state, name string) (snapshot, bool) {
	for _, snap := range s.snapshots {
		if snap.Name == name && (snap.cluster == c.cluster || !c.account.cfg.NamesPerCluster) {
			return snap, true
		}
	}
	return snapshot{}, false
}

// FindSnapshot does not wait until the snapshot is ready.
func (c *Cloud) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	if !c.account.cfg.Capabilities.Snapshots {
		return cloud.Snapshot{}, errNoSnapshots
	}
	return read(ctx, c.account, CallFindSnapshot, func(s state) (cloud.Snapshot, error) {
		snap, found := c.snapshotNamed(s, name)
		switch {
		case !found:
			return cloud.Snapshot{}, fmt.Errorf("snapshot named %q: %w", name, fault.NotFound)
		case snap.cluster != c.cluster:
			return cloud.Snapshot{}, fmt.Errorf("snapshot named %q: %w: %s is of cluster %q", name, fault.Conflict, snap.ID, snap.cluster)
		}
		return snap.out(), nil
	})
}

// GetSnapshot returns the snapshot as it is, ready or not.
func (c *Cloud) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	if !c.account.cfg.Capabilities.Snapshots {
		return cloud.Snapshot{}, errNoSnapshots
	}
	return read(ctx, c.account, CallGetSnapshot, func(s state) (cloud.Snapshot, error) {
		snap, err := s.snapshot(id)
		if err != nil {
			return cloud.Snapshot{}, err
		}
		return snap.out(), nil
	})
}

// DeleteSnapshot removes the snapshot; volumes have copies of their own.
func (c *Cloud) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	if !c.account.cfg.Capabilities.Snapshots {
		return errNoSnapshots
	}
	_, err := write(ctx, c.account, CallDeleteSnapshot, func(s state, _ Fault) (none struct{}, err error) {
		delete(s.snapshots, id)
		return none, nil
	})
	return err
}

// ListSnapshots lists the snapshots of all clusters, oldest first.
func (c *Cloud) ListSnapshots(ctx context.Context, of cloud.VolumeID, want cloud.Page) (cloud.SnapshotList, error) {
	if !c.account.cfg.Capabilities.Snapshots {
		return cloud.SnapshotList{}, errNoSnapshots
	}
	return read(ctx, c.account, CallListSnapshots, func(s state) (list cloud.SnapshotList, err error) {
		var all []snapshot
		for _, snap := range s.snapshots {
			if of == "" || snap.Volume == of {
				all = append(all, snap)
			}
		}
		part, next, err := page(c.account, "snapshots", all, want)
		for _, snap := range part {
			list.Snapshots = append(list.Snapshots, snap.out())
		}
		list.Next = next
		return list, err
	})
}
