package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

var errNoSnapshots = fmt.Errorf("snapshots: %w", fault.Unsupported)

// CreateSnapshot returns at once; the snapshot is ready after Config.OperationTime.
func (c *Cloud) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	a := c.account
	if err := c.checkSnapshot(req); err != nil {
		return cloud.Snapshot{}, fmt.Errorf("create snapshot %q: %w", req.Name, err)
	}
	f, err := a.begin(ctx, CallCreateSnapshot)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	var made snapshot
	a.mu.Lock()
	err = a.change(func(s state) (err error) {
		made, err = c.addSnapshot(s, req)
		return err
	})
	a.mu.Unlock()
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("create snapshot %q: %w", req.Name, err)
	}
	if err := f.end(ctx, CallCreateSnapshot, true); err != nil {
		return cloud.Snapshot{}, err
	}
	return made.out(), nil
}

// checkSnapshot refuses what can never succeed, before anything is sent.
func (c *Cloud) checkSnapshot(req cloud.CreateSnapshotRequest) error {
	switch {
	case !c.account.cfg.Capabilities.Snapshots:
		return errNoSnapshots
	case req.Name == "":
		return fmt.Errorf("%w: the name is empty", fault.InvalidArgument)
	}
	return c.account.elsewhere(string(req.Volume), fault.Precondition)
}

// addSnapshot adds a snapshot to the state.
func (c *Cloud) addSnapshot(s state, req cloud.CreateSnapshotRequest) (snapshot, error) {
	if len(c.snapshotsNamed(s, req.Name)) > 0 {
		return snapshot{}, fmt.Errorf("%w: the name is taken", fault.Conflict)
	}
	vol, err := s.volume(req.Volume)
	switch {
	case err != nil:
		return snapshot{}, err
	case vol.unfit != "":
		return snapshot{}, fmt.Errorf("volume %s: %s: %w", vol.ID, vol.unfit, fault.Precondition)
	}
	n, now := c.account.number(), time.Now()
	snap := snapshot{
		Snapshot: cloud.Snapshot{
			ID: cloud.SnapshotID(fmt.Sprintf("snap-%08x", n)), Name: req.Name,
			Volume: vol.ID, Size: vol.Size, Created: now,
		},
		number: n, cluster: c.cluster, zone: vol.Zone, ready: now.Add(c.account.cfg.OperationTime),
	}
	if c.account.cfg.Capabilities.SnapshotZones {
		snap.Zone = vol.Zone
	}
	s.snapshots[snap.ID] = snap
	return snap, nil
}

// snapshotsNamed returns what has the name for this cluster, whoever made it, oldest first.
func (c *Cloud) snapshotsNamed(s state, name string) (named []snapshot) {
	for _, snap := range s.snapshots {
		if snap.Name == name && (snap.cluster == c.cluster || !c.account.cfg.NamesPerCluster) {
			named = append(named, snap)
		}
	}
	slices.SortFunc(named, func(x, y snapshot) int { return x.number - y.number })
	return named
}

func outAll(snaps []snapshot) []cloud.Snapshot {
	out := make([]cloud.Snapshot, 0, len(snaps))
	for _, snap := range snaps {
		out = append(out, snap.out())
	}
	return out
}

// FindSnapshot does not wait until the snapshot is ready.
func (c *Cloud) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	if !c.account.cfg.Capabilities.Snapshots {
		return cloud.Snapshot{}, errNoSnapshots
	}
	return read(ctx, c.account, CallFindSnapshot, func(s state) (cloud.Snapshot, error) {
		named := c.snapshotsNamed(s, name)
		if len(named) == 0 {
			return cloud.Snapshot{}, fmt.Errorf("snapshot named %q: %w", name, fault.NotFound)
		}
		if snap := named[0]; snap.cluster != c.cluster {
			return cloud.Snapshot{}, fmt.Errorf("snapshot named %q: %w: %s is of cluster %q", name, fault.Conflict, snap.ID, snap.cluster)
		}
		return named[0].out(), nil
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
	if err := c.account.elsewhere(string(id), fault.Precondition); err != nil {
		return fmt.Errorf("delete snapshot: %w", err)
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
		list.Snapshots, list.Next = outAll(part), next
		return list, err
	})
}
