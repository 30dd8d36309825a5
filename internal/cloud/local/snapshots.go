package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CreateSnapshot creates a snapshot by reflink if the pool supports it, else by a copy.
func (l *Local) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	h, err := pool.ParseHandle(string(req.Volume))
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %q: volume %q is not on node %s: %w", req.Name, req.Volume, l.pool.Node(), fault.NotFound)
	}
	if h.Node != l.pool.Node() {
		return cloud.Snapshot{}, l.otherNodeError("snapshot", "volume", h, fault.Precondition)
	}
	r, err := l.pool.CreateSnapshot(ctx, pool.NewSnapshot{Name: req.Name, Volume: h.ID, Tags: pairs(req.Tags)})
	if err != nil {
		return cloud.Snapshot{}, err
	}
	return l.snapshot(r), nil
}

// FindSnapshot returns the snapshot with this name. It waits for a snapshot that is being copied.
func (l *Local) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	e, err := l.pool.FindSnapshot(ctx, name)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	return l.snapshot(e.Record), nil
}

// GetSnapshot returns the snapshot with this id. For a snapshot of another node it returns fault.NotFound.
func (l *Local) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	h, err := pool.ParseSnapshotHandle(string(id))
	if err != nil || h.Node != l.pool.Node() {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %q is not on node %s: %w", id, l.pool.Node(), fault.NotFound)
	}
	e, err := l.pool.GetSnapshot(ctx, h.ID)
	if err != nil {
		return cloud.Snapshot{}, err
	}
	if e.Kind != pool.Whole {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %s: %s (%s): %w", id, e.Kind, e.Problem, fault.NotFound)
	}
	return l.snapshot(e.Record), nil
}

// DeleteSnapshot removes a snapshot and changes nothing else. For a snapshot of another node, which may exist,
// it returns fault.Precondition.
func (l *Local) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h, err := pool.ParseSnapshotHandle(string(id))
	if err != nil {
		return nil // not an id of this backend, so there is no such snapshot
	}
	if h.Node != l.pool.Node() {
		return l.otherNodeError("delete", "snapshot", h, fault.Precondition)
	}
	if err := l.pool.DeleteSnapshot(ctx, h.ID); !errors.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// ListSnapshots returns the snapshots in the order of their ids. It omits images without a record, because
// their source volume is unknown.
func (l *Local) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	after, err := l.parseToken(page.Token, l.pool.SnapshotHandle)
	if err != nil {
		return cloud.SnapshotList{}, err
	}
	entries, err := l.pool.ListSnapshots(ctx)
	if err != nil {
		return cloud.SnapshotList{}, err
	}
	var list cloud.SnapshotList
	var last pool.ID
	for _, e := range entries {
		s := l.snapshot(e.Record)
		if e.Kind != pool.Whole || e.ID <= after || (of != "" && s.Volume != of) {
			continue
		}
		if page.Most > 0 && len(list.Snapshots) == page.Most {
			list.Next = token(last, l.pool.SnapshotHandle)
			break
		}
		list.Snapshots, last = append(list.Snapshots, s), e.ID
	}
	return list, nil
}

func (l *Local) snapshot(r pool.Record) cloud.Snapshot {
	return cloud.Snapshot{
		ID:      cloud.SnapshotID(l.pool.SnapshotHandle(r.ID)),
		Name:    r.Name,
		Volume:  cloud.VolumeID(l.pool.Handle(r.Volume).String()),
		Zone:    l.pool.Node(),
		Size:    cloud.Bytes(r.Size),
		Created: r.Created,
		Ready:   r.State == pool.Ready,
	}
}

// otherNodeError is the error for a volume or a snapshot of another node.
func (l *Local) otherNodeError(what, of string, h pool.Handle, kind fault.Kind) error {
	return fmt.Errorf("%s %s %s: it is on node %s, this is node %s; only that node can do it: %w", what, of, h.ID, h.Node, l.pool.Node(), kind)
}

// source translates the source of a new volume.
func (l *Local) source(s cloud.Source) (pool.From, error) {
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
	case err != nil:
		return from, fmt.Errorf("source %+v is not on node %s: %w: %w", s, l.pool.Node(), fault.NotFound, err)
	case h.Node != l.pool.Node():
		return from, l.otherNodeError("copy", "source", h, fault.Exhausted)
	}
	return from, nil
}

// sourceOf returns the source of an existing volume.
func (l *Local) sourceOf(r pool.Record) cloud.Source {
	switch from := r.SourceOf(); {
	case from.Snapshot != "":
		return cloud.Source{Snapshot: cloud.SnapshotID(l.pool.SnapshotHandle(from.Snapshot))}
	case from.Volume != "":
		return cloud.Source{Volume: cloud.VolumeID(l.pool.Handle(from.Volume).String())}
	}
	return cloud.Source{}
}
