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

// CreateSnapshots returns at once; the snapshots are ready after Config.OperationTime.
func (c *Cloud) CreateSnapshots(ctx context.Context, req cloud.CreateSnapshotsRequest) ([]cloud.Snapshot, error) {
	a := c.account
	if err := c.checkSnapshots(req); err != nil {
		return nil, fmt.Errorf("create snapshots %q: %w", req.Name, err)
	}
	f, err := a.begin(ctx, CallCreateSnapshots)
	if err != nil {
		return nil, err
	}
	var made []snapshot
	a.mu.Lock()
	err = a.change(func(s state) (err error) {
		made, err = c.snapshotAll(s, req)
		return err
	})
	a.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("create snapshots %q: %w", req.Name, err)
	}
	if err := f.end(ctx, CallCreateSnapshots, true); err != nil {
		return nil, err
	}
	return outAll(made), nil
}

// checkSnapshots refuses what can never succeed, before anything is sent.
func (c *Cloud) checkSnapshots(req cloud.CreateSnapshotsRequest) error {
	caps := c.account.cfg.Capabilities
	switch {
	case !caps.Snapshots:
		return errNoSnapshots
	case req.Group && !caps.Groups:
		return fmt.Errorf("groups of snapshots: %w", fault.Unsupported)
	case req.Name == "":
		return fmt.Errorf("%w: the name is empty", fault.InvalidArgument)
	case len(req.Volumes) == 0:
		return fmt.Errorf("%w: no volume", fault.InvalidArgument)
	case len(req.Volumes) > 1 && !req.Group:
		return fmt.Errorf("%w: %d volumes and no group", fault.InvalidArgument, len(req.Volumes))
	}
	for i, id := range req.Volumes {
		if slices.Contains(req.Volumes[:i], id) {
			return fmt.Errorf("%w: volume %s is named twice", fault.InvalidArgument, id)
		}
		if err := c.account.elsewhere(string(id), fault.Precondition); err != nil {
			return err
		}
	}
	return nil
}

// snapshotAll adds the snapshots to the state.
func (c *Cloud) snapshotAll(s state, req cloud.CreateSnapshotsRequest) ([]snapshot, error) {
	if len(c.snapshotsNamed(s, req.Name)) > 0 {
		return nil, fmt.Errorf("%w: the name is taken", fault.Conflict)
	}
	var group cloud.GroupID
	if req.Group {
		group = cloud.GroupID(fmt.Sprintf("group-%08x", c.account.number()))
	}
	now := time.Now()
	made := make([]snapshot, 0, len(req.Volumes))
	for _, id := range req.Volumes {
		vol, err := s.volume(id)
		switch {
		case err != nil:
			return nil, err
		case vol.unfit != "":
			return nil, fmt.Errorf("volume %s: %s: %w", id, vol.unfit, fault.Precondition)
		}
		n := c.account.number()
		snap := snapshot{
			Snapshot: cloud.Snapshot{
				ID: cloud.SnapshotID(fmt.Sprintf("snap-%08x", n)), Name: req.Name,
				Volume: vol.ID, Group: group, Size: vol.Size, Created: now,
			},
			number: n, cluster: c.cluster, zone: vol.Zone, ready: now.Add(c.account.cfg.OperationTime),
		}
		if c.account.cfg.Capabilities.SnapshotZones {
			snap.Zone = vol.Zone
		}
		s.snapshots[snap.ID] = snap
		made = append(made, snap)
	}
	return made, nil
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

// FindSnapshots does not wait until the snapshots are ready.
func (c *Cloud) FindSnapshots(ctx context.Context, name string) ([]cloud.Snapshot, error) {
	if !c.account.cfg.Capabilities.Snapshots {
		return nil, errNoSnapshots
	}
	return read(ctx, c.account, CallFindSnapshots, func(s state) ([]cloud.Snapshot, error) {
		named := c.snapshotsNamed(s, name)
		if len(named) == 0 {
			return nil, fmt.Errorf("snapshot named %q: %w", name, fault.NotFound)
		}
		for _, snap := range named {
			if snap.cluster != c.cluster {
				return nil, fmt.Errorf("snapshot named %q: %w: %s is of cluster %q", name, fault.Conflict, snap.ID, snap.cluster)
			}
		}
		return outAll(named), nil
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
