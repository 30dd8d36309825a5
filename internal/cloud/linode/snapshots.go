package linode

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The cloud has no snapshots of volumes. With Config.Snapshots a snapshot is a copy of its volume that is never attached: a volume
// with the label and the tags of a snapshot, which it gets as a clone gets those of a volume, in one change when it is complete. To
// all other methods it is no volume.

// ParamConsistency is the parameter of a snapshot that demands a certain state of the volume. ConsistencyDetached is its only value.
const (
	ParamConsistency    = "consistency"
	ConsistencyDetached = "detached"
)

// maxSnapshots is the maximum number of snapshots of a volume. Each costs as much as the volume, so a schedule that deletes none must
// not go on for ever; 32 are a month of daily ones.
const maxSnapshots = 32

// noSnapshotsAdvice is the remedy in the refusal of a snapshot.
const noSnapshotsAdvice = "Linode has no snapshots of volumes; make a claim with the volume's claim as its dataSource instead, which copies it, " +
	"or let the driver keep copies as snapshots (--linode-snapshots)"

// noSnapshots is the refusal of snapshots.
type noSnapshots struct{ cloud.NoSnapshots }

// CreateSnapshot returns fault.Unsupported with a remedy.
func (noSnapshots) CreateSnapshot(context.Context, cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	return cloud.Snapshot{}, fmt.Errorf("snapshots: %w: %s", fault.Unsupported, noSnapshotsAdvice)
}

// snapshots are volumes that are copies of others.
type snapshots struct {
	c *Cloud
	// verbs are those of the volumes that are snapshots.
	verbs *block.Verbs
}

// isSnapshot reports whether a volume is a snapshot. Its label or its tags suffice, because a person may change one of them. A copy that
// is not complete is none, whatever its tags: the cloud may copy those of its source.
func isSnapshot(v *volume) bool {
	return v != nil && !copyLabel.MatchString(v.Label) && (snapshotLabel.MatchString(v.Label) || tags.Value(v.Tags, tags.SnapshotOf) != "")
}

// CreateSnapshot creates a copy of a volume and returns when it is complete: nothing public says which moment of the volume a copy has
// before that.
func (s snapshots) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	doing := fmt.Sprintf("create snapshot %q", req.Name)
	p, err := s.copying(req)
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel := s.c.ops.Bounded(ctx)
	defer cancel()
	v, err := s.c.clone(ctx, p)
	if err != nil {
		return cloud.Snapshot{}, fmt.Errorf("%s: %w", doing, err)
	}
	return s.c.snapshotOf(v), nil
}

// copying checks a request and returns that for its copy.
func (s snapshots) copying(req cloud.CreateSnapshotRequest) (p copying, err error) {
	if err := s.c.CheckSnapshot(req); err != nil {
		return p, err
	}
	// No volume has a name with such a character, so the unfinished copies of a volume and a snapshot with one name differ.
	p.Name, p.Source.Volume = "snapshot\x00"+req.Name, req.Volume
	for _, param := range req.Parameters {
		switch {
		case param.Name != ParamConsistency:
			return p, fmt.Errorf("unknown parameter %q: %w", param.Name, fault.InvalidArgument)
		case param.Value != ConsistencyDetached:
			return p, fmt.Errorf("parameter %s: not %s, its only value: %w", param.Name, ConsistencyDetached, fault.InvalidArgument)
		}
		p.detached = true
	}
	p.body.Label = s.c.snapshotLabel(req.Name)
	p.body.Tags, err = s.c.words(req.Tags, cloud.Tag{Key: tags.Hash, Value: cloud.FullHash(req.Name)}, cloud.Tag{Key: tags.SnapshotOf, Value: string(req.Volume)})
	p.begin = func(ctx context.Context) error { return s.room(ctx, api.Number(req.Volume)) }
	return p, err
}

// room returns fault.Quota if a volume has as many snapshots as it may have. Calls at the same time may exceed that.
func (s snapshots) room(ctx context.Context, of int) error {
	all, err := s.c.filtered(ctx, map[string]any{"+contains": s.c.snapshotPrefix()}, budget.Read)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(v volume) bool { return gone(&v) || !snapshotOfVolume(&v, of) })
	if len(all) >= maxSnapshots {
		return fmt.Errorf("volume %d has %d snapshots, each of which costs as much as a volume, and the driver keeps at most %d; delete some: %w",
			of, len(all), maxSnapshots, fault.Quota)
	}
	return nil
}

func snapshotOfVolume(v *volume, of int) bool {
	return isSnapshot(v) && tags.Value(v.Tags, tags.SnapshotOf) == string(volumeID(of))
}

// FindSnapshot returns the snapshot of a request.
func (s snapshots) FindSnapshot(ctx context.Context, name string) (cloud.Snapshot, error) {
	same, err := s.c.labelled(ctx, s.c.snapshotLabel(name))
	if err != nil {
		return cloud.Snapshot{}, err
	}
	same = slices.DeleteFunc(same, func(v volume) bool { return gone(&v) })
	made := func(v volume) bool { return s.c.ours(&v) && tags.Value(v.Tags, tags.Hash) == cloud.FullHash(name) }
	v, err := block.Find(name, same, made, func(v volume) string { return fmt.Sprintf("volume %d (see its tags)", v.ID) })
	if err != nil {
		return cloud.Snapshot{}, err
	}
	return s.c.snapshotOf(&v), nil
}

// GetSnapshot returns the current state of a snapshot.
func (s snapshots) GetSnapshot(ctx context.Context, id cloud.SnapshotID) (cloud.Snapshot, error) {
	n, ok := snapshotNumber(id)
	if !ok {
		return cloud.Snapshot{}, fmt.Errorf("snapshot %.80q: %w: no snapshot has such an id", id, fault.NotFound)
	}
	v, err := s.c.readVolume(ctx, n, budget.Read)
	switch {
	case err != nil:
		return cloud.Snapshot{}, err
	case !isSnapshot(v):
		return cloud.Snapshot{}, fmt.Errorf("snapshot %s: %w: volume %d is none", id, fault.NotFound, n)
	}
	return s.c.snapshotOf(v), nil
}

// DeleteSnapshot deletes the volume of a snapshot.
func (s snapshots) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	n, ok := snapshotNumber(id)
	if !ok {
		return nil
	}
	return s.verbs.DeleteVolume(ctx, volumeID(n))
}

// ListSnapshots returns one page of all snapshots, or of one volume's.
func (s snapshots) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	what, keep, n := "snapshots", isSnapshot, api.Number(of)
	switch {
	case n > 0:
		what, keep = "snapshots of volume "+string(of), func(v *volume) bool { return snapshotOfVolume(v, n) }
	case of != "":
		return cloud.SnapshotList{}, nil
	}
	part, next, err := s.c.listing(what, keep).Part(ctx, page)
	if err != nil {
		return cloud.SnapshotList{}, fmt.Errorf("list snapshots: %w", err)
	}
	list := cloud.SnapshotList{Next: next}
	for i := range part {
		list.Snapshots = append(list.Snapshots, s.c.snapshotOf(&part[i]))
	}
	return list, nil
}

// listing lists the volumes of all regions that keep chooses, in the cloud's order.
func (c *Cloud) listing(what string, keep func(v *volume) bool) api.Listing[volume] {
	all := pages(listOf[volume]{doing: "list " + what, call: c.sdk.ListVolumes, priority: budget.List})
	list := all.Listing(what+" of "+c.cluster, func(v volume) string { return string(volumeID(v.ID)) })
	list.Keep = func(v volume) bool { return !gone(&v) && keep(&v) }
	return list
}

// snapshotOf returns a snapshot as a cloud.Snapshot.
func (c *Cloud) snapshotOf(v *volume) cloud.Snapshot {
	snap := cloud.Snapshot{
		ID: snapshotID(v.ID), Name: v.Label, Volume: cloud.VolumeID(tags.Value(v.Tags, tags.SnapshotOf)), Zone: v.Region,
		Size: cloud.Bytes(v.Size) * cloud.GiB, Ready: v.Status == statusActive, Mark: c.markOf(v),
	}
	if v.Created != nil {
		snap.Created = v.Created.UTC()
	}
	return snap
}

// snapshotIDs is the prefix of ids of snapshots. The number of the volume follows.
const snapshotIDs = "snap-"

func snapshotID(n int) cloud.SnapshotID { return cloud.SnapshotID(snapshotIDs + strconv.Itoa(n)) }

// snapshotNumber returns the number of the volume of a snapshot; false for an id that no snapshot can have.
func snapshotNumber(id cloud.SnapshotID) (int, bool) {
	text, is := strings.CutPrefix(string(id), snapshotIDs)
	n := api.Number(text)
	return n, is && n > 0
}

// Attach attaches a volume, and no snapshot, which only its record shows.
func (c *Cloud) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	n := api.Number(id)
	if n > 0 && api.IsNumber(node) && c.Capabilities().Snapshots {
		switch v, err := c.findVolume(ctx, n, budget.Attach); {
		case err != nil:
			return cloud.Device{}, fmt.Errorf("attach volume %d: %w", n, err)
		case isSnapshot(v):
			return cloud.Device{}, fmt.Errorf("attach volume %d: it is the snapshot %s, which can be restored and is never attached: %w", n, snapshotID(n), fault.NotFound)
		}
	}
	return c.Verbs.Attach(ctx, id, node)
}
