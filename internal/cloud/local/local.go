// Package local keeps volumes with a hard size limit on the disks of the node itself. The backend is a cloud of one node.
//
// It translates the contract of package cloud into calls of its pools (package pool), which have all the state. The node program
// grows and uses the volumes; the two programs share only the pools.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// ParamPool is the class parameter that names the pool. A class without it uses pool.DefaultName.
const ParamPool = "pool"

// Config configures a Local.
type Config struct {
	// Pools are the node's pools. New sets their Node and Progress.
	Pools []pool.Config
	// Node is this node's name: a DNS-1123 subdomain.
	Node string
	// Log receives the progress of the zeroing of logical volumes; nil for none.
	Log *zap.Logger
}

// Local is the backend of one node.
type Local struct {
	cloud.NoModify

	node  string
	pools *pools.Set
}

var (
	_ cloud.Cloud          = (*Local)(nil)
	_ cloud.SnapshotBlocks = (*Local)(nil)
)

// New opens the node's pools, and creates them on empty filesystems. It returns an error if none can be used.
func New(ctx context.Context, cfg Config) (*Local, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	configs := slices.Clone(cfg.Pools)
	for i := range configs {
		configs[i].Node, configs[i].Progress = cfg.Node, func(at pool.Progress) { logProgress(cfg.Log, at) }
	}
	set, err := pools.Open(ctx, configs...)
	if err != nil {
		return nil, err
	}
	for _, p := range cfg.Pools {
		p, err := set.Named(ctx, cmp.Or(p.Name, pool.DefaultName))
		if err != nil {
			cfg.Log.Warn("pool is not open", zap.Error(err))
			continue
		}
		cfg.Log.Info("pool is open", zap.String("pool", p.Location()), zap.String("name", p.Name()), zap.String("snapshots_by", p.SnapshotsBy()))
	}
	return &Local{node: cfg.Node, pools: set}, nil
}

// Close stops the zeroing of logical volumes, which another call continues.
func (l *Local) Close(ctx context.Context) error { return l.pools.Close(ctx) }

func logProgress(log *zap.Logger, at pool.Progress) {
	log = log.With(zap.String("target", at.Target), zap.Int64("zeroed_bytes", at.Done), zap.Int64("total_bytes", at.Total))
	switch {
	case at.Err != nil:
		log.Warn("zeroing failed", zap.Error(at.Err))
	case at.Ended:
		log.Info("zeroing is complete")
	default:
		log.Info("zeroing")
	}
}

// Capabilities describes volumes that are bound to a node; the node program grows and uses them. Only pools with reflinks have
// snapshots and clones. They are advertised for all pools, because all nodes have the same sidecars and the snapshotter exits
// without them. A pool without reflinks refuses each request with fault.NoCopies.
func (l *Local) Capabilities() cloud.Capabilities {
	return cloud.Capabilities{
		Snapshots:      true,
		SnapshotZones:  profile.Local.SnapshotZones,
		SnapshotBlocks: profile.Local.SnapshotBlocks,
		Clones:         true,
		Capacity:       true,
		Health:         true,
		Scope:          cloud.Scope(profile.Local.Scope),
		SizeStep:       cloud.Bytes(pool.SizeStep),
		SmallestVolume: cloud.Bytes(pool.SmallestVolume),
		LargestVolume:  cloud.Bytes(pool.LargestVolume),
		DefaultSize:    cloud.GiB,
		Parameters:     []string{ParamPool},
		Defaults:       []cloud.Parameter{{Name: ParamPool, Value: pool.DefaultName}},
	}
}

// Capacity returns the size of the largest volume that fits the available space of the class's pool. A pool that
// this node does not have, or that is missing, has none: the scheduler then chooses another node.
func (l *Local) Capacity(ctx context.Context, zone string, class []cloud.Parameter) (cloud.Bytes, error) {
	if zone != "" && zone != l.node {
		return 0, fmt.Errorf("capacity of node %q: this is node %s: %w", zone, l.node, fault.NotFound)
	}
	name, err := poolName(class)
	if err != nil {
		return 0, fmt.Errorf("capacity: %w", err)
	}
	free, err := l.free(ctx, name)
	if kind := fault.Of(err); kind == fault.NotFound || kind == fault.Precondition {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	free -= free % pool.SizeStep
	if free < pool.SmallestVolume {
		free = 0
	}
	return cloud.Bytes(free), nil
}

func (l *Local) free(ctx context.Context, name string) (int64, error) {
	p, err := l.pools.Named(ctx, name)
	if err != nil {
		return 0, err
	}
	return p.Free(ctx)
}

// Check checks that the pools are present and writable.
func (l *Local) Check(ctx context.Context) error { return l.pools.Check(ctx) }

// poolName returns the pool of a class.
func poolName(class []cloud.Parameter) (name string, err error) {
	name = pool.DefaultName
	for _, p := range class {
		if p.Name != ParamPool {
			return "", fmt.Errorf("unknown parameter %q, there is %q: %w", p.Name, ParamPool, fault.InvalidArgument)
		}
		name, err = p.Value, errors.Join(err, pool.CheckName(p.Value))
	}
	return name, err
}

// CreateVolume reserves a volume in full, with the content of its source. A pool that this node does not have
// is fault.Exhausted, because pools differ between nodes.
func (l *Local) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	name, err := poolName(req.Parameters)
	switch {
	case err != nil:
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	case len(req.Zones) > 0 && !slices.Contains(req.Zones, l.node):
		return cloud.Volume{}, fmt.Errorf("create volume %q: this is node %s, asked for %q: %w", req.Name, l.node, req.Zones, fault.NoZone)
	case req.Limit > 0 && req.Limit < req.Size:
		return cloud.Volume{}, fmt.Errorf("create volume %q: size %s is above the limit %s: %w", req.Name, req.Size, req.Limit, fault.OutOfRange)
	}
	p, err := l.pools.Named(ctx, name)
	switch {
	case errors.Is(err, fault.NotFound), errors.Is(err, pool.ErrNotHere):
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w: %w", req.Name, fault.NoZone, err)
	case err != nil:
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	from, err := l.source(p, req.Source)
	if err == nil {
		err = l.pools.CheckOthers(ctx, p, req.Name)
	}
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	r, err := p.Create(ctx, pool.NewVolume{Name: req.Name, Size: int64(req.Size), Limit: int64(req.Limit), From: from, Tags: pairs(req.Tags)})
	if err != nil {
		return cloud.Volume{}, err
	}
	return volume(p, pool.Entry{ID: r.ID, Kind: pool.Whole, Record: r, Size: r.Size, File: p.FileName(r.ID)}), nil
}

// FindVolume returns the volume with this name. It waits while the volume is being zeroed.
func (l *Local) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	p, e, err := l.pools.FindByName(ctx, name)
	if err != nil {
		return cloud.Volume{}, err
	}
	return volume(p, e), nil
}

// GetVolume returns the volume with this id. For a volume of another node it returns fault.NotFound.
func (l *Local) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	h, err := pool.ParseHandle(string(id))
	if err != nil || h.Node != l.node {
		return cloud.Volume{}, fmt.Errorf("volume %q is not on node %s: %w", id, l.node, fault.NotFound)
	}
	p, err := l.pools.Of(ctx, h)
	if err != nil {
		return cloud.Volume{}, err
	}
	e, err := p.Get(ctx, h.ID)
	if err != nil {
		return cloud.Volume{}, err
	}
	if !hasData(e) {
		return cloud.Volume{}, fmt.Errorf("volume %s: %s: %w", id, e.Problem, fault.NotFound)
	}
	return volume(p, e), nil
}

// DeleteVolume deletes a volume that is not in use. For a volume of another node, which may exist, it returns fault.Precondition:
// only that node can delete it.
func (l *Local) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h, err := pool.ParseHandle(string(id))
	if err != nil {
		return nil // not an id of this backend, so there is no such volume
	}
	if h.Node != l.node {
		return l.otherNodeError("delete", "volume", h, fault.Precondition)
	}
	p, err := l.pools.Of(ctx, h)
	if err == nil {
		err = p.Delete(ctx, h.ID)
	}
	if !errors.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// ExpandVolume returns fault.Unsupported: the node program grows volumes.
func (l *Local) ExpandVolume(context.Context, cloud.VolumeID, cloud.Bytes) (cloud.Expansion, error) {
	return cloud.Expansion{}, fmt.Errorf("expand by the controller: %w", fault.Unsupported)
}

// Attach returns fault.Unsupported: the volume is on its node already.
func (l *Local) Attach(context.Context, cloud.VolumeID, cloud.NodeID) (cloud.Device, error) {
	return cloud.Device{}, fmt.Errorf("attach: %w", fault.Unsupported)
}

// Detach returns fault.Unsupported.
func (l *Local) Detach(context.Context, cloud.VolumeID, cloud.NodeID) error {
	return fmt.Errorf("detach: %w", fault.Unsupported)
}
