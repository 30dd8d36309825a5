package real

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Budget is what a run may make.
type Budget struct {
	// Volumes and snapshots together; Largest is the size of one.
	Volumes int
	Largest cloud.Bytes

	made atomic.Int64
}

// Made is how many creates were sent so far.
func (b *Budget) Made() int { return int(b.made.Load()) }

func (b *Budget) take(name string, size, largest cloud.Bytes) error {
	if size > b.Largest && size <= largest {
		return fmt.Errorf("create %q: %s is more than the %s that a run may make: %w", name, size, b.Largest, fault.Exhausted)
	}
	if n := b.made.Add(1); n > int64(b.Volumes) {
		return fmt.Errorf("create %q: a run may make %d volumes and snapshots: %w", name, b.Volumes, fault.Exhausted)
	}
	return nil
}

// Guard stands before the backend. It shows only what has the prefix, so that an account with other volumes looks empty
// to the suite, and lets no change of anything else pass: the suite tries ids that it makes from a real one, which may
// belong to others. Without machines it has no attaching.
type Guard struct {
	cloud.Cloud

	prefix   string
	machines []cloud.NodeID
	budget   *Budget

	mu   sync.Mutex
	ours map[string]bool // ids of volumes and snapshots
}

// NewGuard guards a backend whose names begin with prefix.
func NewGuard(c cloud.Cloud, prefix string, machines []cloud.NodeID, budget *Budget) *Guard {
	return &Guard{Cloud: c, prefix: strings.TrimRight(prefix, "-"), machines: machines, budget: budget, ours: map[string]bool{}}
}

// mine reports whether a name is the guard's, and remembers the id that has it.
func (g *Guard) mine(id, name string) bool {
	if !strings.HasPrefix(name, g.prefix) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ours[id] = true
	return true
}

func (g *Guard) known(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ours[id]
}

// volume lets a change of a volume pass if it is the guard's or does not exist.
func (g *Guard) volume(ctx context.Context, id cloud.VolumeID) error {
	if id == "" || g.known(string(id)) {
		return nil
	}
	v, err := g.GetVolume(ctx, id)
	return g.pass(string(id), v.Name, err)
}

func (g *Guard) snapshot(ctx context.Context, id cloud.SnapshotID) error {
	if id == "" || g.known(string(id)) || !g.Cloud.Capabilities().Snapshots {
		return nil
	}
	s, err := g.GetSnapshot(ctx, id)
	return g.pass(string(id), s.Name, err)
}

func (g *Guard) pass(id, name string, err error) error {
	switch {
	case errors.Is(err, fault.NotFound), errors.Is(err, fault.InvalidArgument):
		return nil
	case err != nil:
		return err
	case g.mine(id, name):
		return nil
	}
	return fmt.Errorf("%.80q, named %q, is not of this run and is left alone: %w", id, name, fault.NotFound)
}

// node lets a volume be attached to the given machines, and to one that does not exist.
func (g *Guard) node(id cloud.NodeID) error {
	if slices.Contains(g.machines, id) || len(g.machines) > 0 && id == g.machines[0]+"9" {
		return nil
	}
	return fmt.Errorf("machine %.80q is not one of %q: %w", id, g.machines, fault.NotFound)
}

// Capabilities are the backend's, without attaching where there are no machines for it.
func (g *Guard) Capabilities() cloud.Capabilities {
	c := g.Cloud.Capabilities()
	c.Attach = c.Attach && len(g.machines) > 0
	return c
}

// CreateVolume passes what the budget allows.
func (g *Guard) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	err := errors.Join(g.volume(ctx, req.Source.Volume), g.snapshot(ctx, req.Source.Snapshot),
		g.budget.take(req.Name, req.Size, g.Cloud.Capabilities().LargestVolume))
	if err != nil {
		return cloud.Volume{}, err
	}
	v, err := g.Cloud.CreateVolume(ctx, req)
	if err == nil {
		g.mine(string(v.ID), v.Name)
	}
	return v, err
}

// DeleteVolume passes the guard's.
func (g *Guard) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	if err := g.volume(ctx, id); err != nil {
		return err
	}
	return g.Cloud.DeleteVolume(ctx, id)
}

// ExpandVolume passes the guard's, within the budget's size.
func (g *Guard) ExpandVolume(ctx context.Context, id cloud.VolumeID, size cloud.Bytes) (cloud.Expansion, error) {
	if err := g.volume(ctx, id); err != nil {
		return cloud.Expansion{}, err
	}
	if size > g.budget.Largest && size <= g.Cloud.Capabilities().LargestVolume {
		return cloud.Expansion{}, fmt.Errorf("%s is more than the %s that a run may make: %w", size, g.budget.Largest, fault.OutOfRange)
	}
	return g.Cloud.ExpandVolume(ctx, id, size)
}

// ModifyVolume passes the guard's.
func (g *Guard) ModifyVolume(ctx context.Context, id cloud.VolumeID, tags []cloud.Tag) error {
	if err := g.volume(ctx, id); err != nil {
		return err
	}
	return g.Cloud.ModifyVolume(ctx, id, tags)
}

// Attach passes the guard's volumes and machines.
func (g *Guard) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	if len(g.machines) == 0 {
		return cloud.Device{}, fmt.Errorf("attach without machines: %w", fault.Unsupported)
	}
	if err := errors.Join(g.volume(ctx, id), g.node(node)); err != nil {
		return cloud.Device{}, err
	}
	return g.Cloud.Attach(ctx, id, node)
}

// Detach passes the guard's volumes.
func (g *Guard) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	if len(g.machines) == 0 {
		return fmt.Errorf("detach without machines: %w", fault.Unsupported)
	}
	if err := g.volume(ctx, id); err != nil {
		return err
	}
	return g.Cloud.Detach(ctx, id, node)
}

// CreateSnapshot passes the guard's volumes, within the budget.
func (g *Guard) CreateSnapshot(ctx context.Context, req cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	if g.Cloud.Capabilities().Snapshots {
		if err := errors.Join(g.volume(ctx, req.Volume), g.budget.take(req.Name, 0, 0)); err != nil {
			return cloud.Snapshot{}, err
		}
	}
	s, err := g.Cloud.CreateSnapshot(ctx, req)
	if err == nil {
		g.mine(string(s.ID), s.Name)
	}
	return s, err
}

// DeleteSnapshot passes the guard's.
func (g *Guard) DeleteSnapshot(ctx context.Context, id cloud.SnapshotID) error {
	if err := g.snapshot(ctx, id); err != nil {
		return err
	}
	return g.Cloud.DeleteSnapshot(ctx, id)
}

// ListVolumes shows the guard's, all on one page.
func (g *Guard) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	if page.Token != "" {
		return g.Cloud.ListVolumes(ctx, page)
	}
	all, err := Volumes(ctx, g.Cloud)
	all = slices.DeleteFunc(all, func(v cloud.Volume) bool { return !g.mine(string(v.ID), v.Name) })
	return cloud.VolumeList{Volumes: all}, err
}

// ListSnapshots shows the guard's, all on one page.
func (g *Guard) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	if page.Token != "" || of != "" || !g.Cloud.Capabilities().Snapshots {
		return g.Cloud.ListSnapshots(ctx, of, page)
	}
	all, err := Snapshots(ctx, g.Cloud)
	all = slices.DeleteFunc(all, func(s cloud.Snapshot) bool { return !g.mine(string(s.ID), s.Name) })
	return cloud.SnapshotList{Snapshots: all}, err
}
