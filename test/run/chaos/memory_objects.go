package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateVolume has its effect at once; what is copied is the content of that moment.
func (c *memoryClient) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	k := &call{name: "CreateVolume", object: req.Name, writes: true, chances: []chance{{Full, .06}}}
	if !req.Source.Blank() {
		k.chances = append(k.chances, chance{HalfDone, .35})
	}
	return do(ctx, c, k, func(ctx context.Context) (cloud.Volume, error) {
		if at, ok := c.w.ready[req.Source.Snapshot]; ok && time.Now().Before(at) {
			return cloud.Volume{}, fmt.Errorf("snapshot %s is not ready: %w", req.Source.Snapshot, fault.Busy)
		}
		if k.fault == HalfDone {
			req.Size = c.w.sizeOf(ctx, req.Source, req.Size)
		}
		vol, err := c.Cloud.CreateVolume(ctx, req)
		if err != nil {
			return vol, err
		}
		c.w.known[vol.ID], c.w.born[req.Name] = req.Name, time.Now()
		c.w.stamps[vol.ID] = c.w.stamps[req.Source.Volume] + c.w.images[req.Source.Snapshot] // at most one is there
		return vol, nil
	})
}

// sizeOf is the size of a source, at most that of the copy. The caller holds mu.
func (w *memoryWorld) sizeOf(ctx context.Context, from cloud.Source, size cloud.Bytes) cloud.Bytes {
	if snap, err := w.ours.GetSnapshot(ctx, from.Snapshot); err == nil {
		return min(size, snap.Size)
	}
	if vol, err := w.ours.GetVolume(ctx, from.Volume); err == nil {
		return min(size, vol.Size)
	}
	return size
}

func (c *memoryClient) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	k := &call{name: "FindVolume", object: name, chances: []chance{{Stale, .3}}}
	return do(ctx, c, k, func(ctx context.Context) (cloud.Volume, error) {
		// A cloud that says that it is full and hides what it holds at the same time cannot be seen through.
		if k.fault == Stale && c.w.young(name) && !c.w.in.lastWas("CreateVolume", name, Full) {
			return cloud.Volume{}, fmt.Errorf("volume named %q: %w", name, fault.NotFound)
		}
		return c.Cloud.FindVolume(ctx, name)
	})
}

func (c *memoryClient) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	return do(ctx, c, &call{name: "GetVolume", object: c.w.nameOf(id)}, func(ctx context.Context) (cloud.Volume, error) {
		return c.Cloud.GetVolume(ctx, id)
	})
}

func (c *memoryClient) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	k := &call{name: "DeleteVolume", object: c.w.nameOf(id), writes: true, chances: []chance{{Failed, .04}}}
	_, err := do(ctx, c, k, func(ctx context.Context) (struct{}, error) {
		if k.fault == Failed {
			return struct{}{}, fmt.Errorf("delete %s: the operation failed: %w", id, fault.Unavailable)
		}
		return struct{}{}, c.Cloud.DeleteVolume(ctx, id)
	})
	return err
}

func (c *memoryClient) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	k := &call{name: "ExpandVolume", object: c.w.nameOf(id), writes: true, chances: []chance{{Full, .1}, {Failed, .1}}}
	return do(ctx, c, k, func(ctx context.Context) (cloud.Expansion, error) {
		if k.fault == Failed {
			return cloud.Expansion{}, fmt.Errorf("expand %s: the operation failed: %w", id, fault.Unavailable)
		}
		return c.Cloud.ExpandVolume(ctx, id, size)
	})
}

// ListVolumes shows, when it is stale, no volumes that are young and others where they were.
func (c *memoryClient) ListVolumes(ctx context.Context, at cloud.Page) (cloud.VolumeList, error) {
	k := &call{name: "ListVolumes", object: "all", chances: []chance{{Stale, .25}}}
	return do(ctx, c, k, func(ctx context.Context) (cloud.VolumeList, error) {
		list, err := c.Cloud.ListVolumes(ctx, at)
		if k.fault != Stale {
			return list, err
		}
		list.Volumes = slices.DeleteFunc(list.Volumes, func(v cloud.Volume) bool { return c.w.young(v.Name) })
		for i, v := range list.Volumes {
			if was, ok := c.w.before[v.ID]; ok && time.Since(was.until) < lag {
				list.Volumes[i].AttachedTo = slices.Clone(was.on)
			}
		}
		return list, err
	})
}

// CreateSnapshot makes snapshots that are ready a while later.
func (c *memoryClient) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	k := &call{name: "CreateSnapshot", object: req.Name, writes: true, chances: []chance{{Full, .06}}}
	return do(ctx, c, k, func(ctx context.Context) (cloud.Snapshot, error) {
		snap, err := c.Cloud.CreateSnapshot(ctx, req)
		if err != nil {
			return snap, err
		}
		c.w.images[snap.ID], c.w.snaps[snap.ID] = c.w.stamps[snap.Volume], snap.Name
		c.w.ready[snap.ID] = time.Now().Add(between(k.rng, 0, 20*time.Second))
		c.w.born[snap.Name] = time.Now()
		snap.Ready = false
		return snap, nil
	})
}

func (c *memoryClient) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	k := &call{name: "FindSnapshot", object: name, chances: []chance{{Stale, .3}}}
	return do(ctx, c, k, func(ctx context.Context) (cloud.Snapshot, error) {
		if k.fault == Stale && c.w.young(name) {
			return cloud.Snapshot{}, fmt.Errorf("snapshot named %q: %w", name, fault.NotFound)
		}
		found, err := c.Cloud.FindSnapshot(ctx, name)
		found.Ready = c.w.snapshotReady(found.ID)
		return found, err
	})
}

// snapshotReady says whether a snapshot is ready by now. The caller holds mu.
func (w *memoryWorld) snapshotReady(id cloud.SnapshotID) bool { return !time.Now().Before(w.ready[id]) }

func (c *memoryClient) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	k := &call{name: "GetSnapshot", object: c.w.snapshotName(id)}
	return do(ctx, c, k, func(ctx context.Context) (cloud.Snapshot, error) {
		snap, err := c.Cloud.GetSnapshot(ctx, id)
		snap.Ready = c.w.snapshotReady(id)
		return snap, err
	})
}

func (c *memoryClient) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	k := &call{name: "DeleteSnapshot", object: c.w.snapshotName(id), writes: true}
	_, err := do(ctx, c, k, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.Cloud.DeleteSnapshot(ctx, id)
	})
	return err
}

func (c *memoryClient) ListSnapshots(ctx context.Context, of cloud.VolumeID, at cloud.Page) (cloud.SnapshotList, error) {
	k := &call{name: "ListSnapshots", object: "all", chances: []chance{{Stale, .25}}}
	return do(ctx, c, k, func(ctx context.Context) (cloud.SnapshotList, error) {
		list, err := c.Cloud.ListSnapshots(ctx, of, at)
		if k.fault == Stale {
			list.Snapshots = slices.DeleteFunc(list.Snapshots, func(s cloud.Snapshot) bool { return c.w.young(s.Name) })
		}
		for i, snap := range list.Snapshots {
			list.Snapshots[i].Ready = c.w.snapshotReady(snap.ID)
		}
		return list, err
	})
}
