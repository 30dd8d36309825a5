package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// CreateSnapshot creates a snapshot in the pool of its volume. fault.NoCopies if the pool has no reflinks.
func (l *Local) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	h, err := pool.ParseHandle(string(req.Volume))
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %q: volume %q is not on node %s: %w", req.Name, req.Volume, l.node, fault.NotFound)
	}
	if h.Node != l.node {
		return cloud.Snapshot{}, l.otherNodeError("snapshot", "volume", h, fault.Precondition)
	}
	p, err := l.pools.Of(ctx, h)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	r, err := p.CreateSnapshot(ctx, pool.NewSnapshot{Name: req.Name, Volume: h.ID, Tags: pairs(req.Tags)})
	if err != nil {
		return cloud.Snapshot{}, err
	}
	return snapshot(p, r), nil
}

// FindSnapshot returns the snapshot with this name.
func (l *Local) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	p, e, err := l.pools.FindSnapshot(ctx, name)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	return snapshot(p, e.Record), nil
}

// GetSnapshot returns the snapshot with this id. For a snapshot of another node it returns fault.NotFound, and for one that has data
// and cannot be read fault.VolumeDamaged.
func (l *Local) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	h, err := pool.ParseSnapshotHandle(string(id))
	if err != nil || h.Node != l.node {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %q is not on node %s: %w", id, l.node, fault.NotFound)
	}
	p, err := l.pools.Of(ctx, h)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	e, err := p.GetSnapshot(ctx, h.ID)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	if e.Kind == pool.Whole {
		return snapshot(p, e.Record), nil
	}
	kind := error(fault.NotFound)
	if hasData(e) {
		kind = fault.VolumeDamaged
	}
	return cloud.Snapshot{}, fmt.Errorf("snapshot %s: %s (%s): %w", id, e.Kind, e.Problem, kind)
}

// DeleteSnapshot deletes a snapshot and changes nothing else. For a snapshot of another node, which may exist, it returns
// fault.Precondition.
func (l *Local) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h, err := pool.ParseSnapshotHandle(string(id))
	if err != nil {
		return nil // not an id of this backend, so there is no such snapshot
	}
	if h.Node != l.node {
		return l.otherNodeError("delete", "snapshot", h, fault.Precondition)
	}
	p, err := l.pools.Of(ctx, h)
	if err == nil {
		err = p.DeleteSnapshot(ctx, h.ID)
	}
	if !errors.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// ListSnapshots returns the snapshots in the order of their ids. It omits images without a record, because
// their source volume is unknown.
func (l *Local) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	after, err := l.parseToken(page.Token, "snapshots")
	if err != nil {
		return cloud.SnapshotList{}, err
	}
	entries, err := l.entries(ctx, pool.Storage.ListSnapshots)
	if err != nil {
		return cloud.SnapshotList{}, err
	}
	var list cloud.SnapshotList
	var last pool.ID
	for _, e := range entries {
		s := snapshot(e.Storage, e.Record)
		if e.Kind != pool.Whole || e.ID <= after || (of != "" && s.Volume != of) {
			continue
		}
		if page.Most > 0 && len(list.Snapshots) == page.Most {
			list.Next = l.token("snapshots", last)
			break
		}
		list.Snapshots, last = append(list.Snapshots, s), e.ID
	}
	return list, nil
}

// ReadBlocks reports the blocks of a snapshot. For a snapshot of another node, which may exist, it returns fault.SourceElsewhere.
func (l *Local) ReadBlocks(ctx context.Context, req cloud.BlocksRequest, send func(cloud.BlockList) error) error {
	target, err := l.blocksOf(req.Target)
	var base pool.Handle
	if err == nil && req.Base != "" {
		base, err = l.blocksOf(req.Base)
	}
	switch {
	case err != nil:
		return err
	case req.Base != "" && (base.Node != target.Node || base.Pool != target.Pool):
		return fmt.Errorf("the snapshots %s and %s are in different pools, so of different volumes: %w", req.Base, req.Target, fault.InvalidArgument)
	case target.Node != l.node:
		return l.otherNodeError("read the blocks of", "snapshot", target, fault.SourceElsewhere.Explain(fault.Precondition))
	}
	p, err := l.pools.Of(ctx, target)
	if err != nil {
		return err
	}
	var list []cloud.BlockRange
	return p.ReadBlocks(ctx, pool.BlocksRequest{Target: target.ID, Base: base.ID, From: int64(req.From)}, func(size int64, blocks []pool.Range) error {
		list = list[:0]
		for _, r := range blocks {
			list = append(list, cloud.BlockRange{Offset: cloud.Bytes(r.Start), Length: cloud.Bytes(r.Length)})
		}
		return send(cloud.BlockList{Size: cloud.Bytes(size), Blocks: list})
	})
}

// blocksOf returns the handle of a snapshot of any node.
func (l *Local) blocksOf(id cloud.SnapshotID) (pool.Handle, error) {
	h, err := pool.ParseSnapshotHandle(string(id))
	if err != nil {
		err = fmt.Errorf("%w: %w", fault.NotFound, err)
	}
	return h, err
}

func snapshot(p pool.Storage, r pool.Record) cloud.Snapshot {
	return cloud.Snapshot{
		ID:      cloud.SnapshotID(p.Handle(r.ID).Snapshot()),
		Name:    r.Name,
		Volume:  cloud.VolumeID(p.Handle(r.Volume).String()),
		Zone:    p.Node(),
		Size:    cloud.Bytes(r.Size),
		Created: r.Created,
		Ready:   r.State == pool.Ready,
	}
}

// otherNodeError returns the error for a volume or a snapshot of another node.
func (l *Local) otherNodeError(what, of string, h pool.Handle, why error) error {
	return fmt.Errorf("%s %s %s: it is on node %s, this is node %s; only that node can do it: %w", what, of, h.ID, h.Node, l.node, why)
}

// source returns the source of a new volume in pool p. A source in another pool of this node is fault.InvalidArgument: copies stay
// in their pool.
func (l *Local) source(p pool.Storage, s cloud.Source) (pool.From, error) {
	var h pool.Handle
	var err error
	var from pool.From
	switch {
	case s.Volume != "" && s.Snapshot != "":
		return from, fmt.Errorf("a volume and a snapshot as the source: %w", fault.InvalidArgument)
	case s.Volume != "":
		h, err = pool.ParseHandle(string(s.Volume))
		from.Volume = h.ID
	case s.Snapshot != "":
		h, err = pool.ParseSnapshotHandle(string(s.Snapshot))
		from.Snapshot = h.ID
	default:
		return from, nil
	}
	switch {
	case err == nil && h.Node != l.node:
		return from, l.otherNodeError("copy", "source", h, fault.SourceElsewhere)
	case p.SnapshotsBy() == pool.NoSnapshots:
		return from, fmt.Errorf("the pool %s has no snapshots and clones; use a class of a pool on an xfs, or a backup of the files: %w", p.Name(), fault.NoCopies)
	case err != nil:
		return from, fmt.Errorf("source %+v is not on node %s: %w: %w", s, l.node, fault.NotFound, err)
	}
	if h.Pool != p.Name() {
		return from, fmt.Errorf("source %s is in the pool %s, asked for is a volume in the pool %s; use a class of the source's pool: %w",
			h.ID, h.Pool, p.Name(), fault.InvalidArgument)
	}
	return from, nil
}

// sourceOf returns the source of an existing volume.
func sourceOf(p pool.Storage, r pool.Record) cloud.Source {
	switch from := r.SourceOf(); {
	case from.Snapshot != "":
		return cloud.Source{Snapshot: cloud.SnapshotID(p.Handle(from.Snapshot).Snapshot())}
	case from.Volume != "":
		return cloud.Source{Volume: cloud.VolumeID(p.Handle(from.Volume).String())}
	}
	return cloud.Source{}
}
