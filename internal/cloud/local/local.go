// Package local keeps volumes of a hard size on the node itself, in a folder: a cloud of one machine.
//
// It translates the contract of package cloud into calls of its pool (package pool), which has all the
// state. The node program grows and uses the volumes; the two programs share only the pool's folder.
package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Config is the location and the node of the pool.
type Config struct {
	// Pool is the pool's folder, an absolute path.
	Pool string
	// Node is this node's name: a DNS-1123 subdomain.
	Node string
	// PoolIDFile keeps the pool's id outside of the pool; see pool.Config.
	PoolIDFile string
	// Log receives the progress of copies; nil for none.
	Log *zap.Logger
}

// Local is the backend of one node.
type Local struct {
	pool *pool.Pool
}

var _ cloud.Cloud = (*Local)(nil)

// New opens the node's pool, and creates it in an empty folder.
func New(ctx context.Context, cfg Config) (*Local, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	p, err := pool.Open(ctx, pool.Config{
		Dir: cfg.Pool, Node: cfg.Node, IDFile: cfg.PoolIDFile, Progress: func(at pool.Progress) { logProgress(cfg.Log, at) },
	})
	if err != nil {
		return nil, err
	}
	by := "copy"
	if p.Reflink() {
		by = "reflink"
	}
	cfg.Log.Info("pool is open", zap.String("pool", cfg.Pool), zap.String("snapshots_by", by))
	return &Local{pool: p}, nil
}

// Close undoes the running copies. Without Close the next start undoes them.
func (l *Local) Close(ctx context.Context) error { return l.pool.Close(ctx) }

func logProgress(log *zap.Logger, at pool.Progress) {
	log = log.With(zap.String("target", at.Target), zap.String("source", at.Source),
		zap.Int64("copied_bytes", at.Done), zap.Int64("total_bytes", at.Total))
	switch {
	case at.Err != nil:
		log.Warn("copy failed", zap.Error(at.Err))
	case at.Ended:
		log.Info("copy is complete")
	default:
		log.Info("copying")
	}
}

// Capabilities reports volumes that are bound to a node; the node program grows and uses them.
func (l *Local) Capabilities() cloud.Capabilities {
	return cloud.Capabilities{
		Snapshots:      true,
		SnapshotZones:  profile.Local.SnapshotZones,
		Clones:         true,
		Capacity:       true,
		Health:         true,
		Scope:          cloud.Scope(profile.Local.Scope),
		SizeStep:       cloud.Bytes(pool.SizeStep),
		SmallestVolume: cloud.Bytes(pool.SmallestVolume),
		LargestVolume:  cloud.Bytes(pool.LargestVolume),
		DefaultSize:    cloud.GiB,
	}
}

// Capacity returns the size of the largest volume that fits the available space of the pool.
func (l *Local) Capacity(ctx context.Context, zone string, class []cloud.Parameter) (cloud.Bytes, error) {
	if len(class) > 0 {
		return 0, fmt.Errorf("capacity: unknown parameter %q, there is none: %w", class[0].Name, fault.InvalidArgument)
	}
	if zone != "" && zone != l.pool.Node() {
		return 0, fmt.Errorf("capacity of node %q: this is node %s: %w", zone, l.pool.Node(), fault.NotFound)
	}
	free, err := l.pool.Free(ctx)
	if err != nil {
		return 0, err
	}
	free -= free % pool.SizeStep
	if free < pool.SmallestVolume {
		free = 0
	}
	return cloud.Bytes(free), nil
}

// Check checks that the pool is present and writable.
func (l *Local) Check(ctx context.Context) error { return l.pool.Check(ctx) }

// CreateVolume reserves a volume in full, and copies the content of its source.
func (l *Local) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	node := l.pool.Node()
	switch {
	case len(req.Zones) > 0 && !slices.Contains(req.Zones, node):
		return cloud.Volume{}, fmt.Errorf("create volume %q: this is node %s, asked for %q: %w", req.Name, node, req.Zones, fault.Exhausted)
	case len(req.Parameters) > 0:
		return cloud.Volume{}, fmt.Errorf("create volume %q: unknown parameter %q, there is none: %w", req.Name, req.Parameters[0].Name, fault.InvalidArgument)
	case req.Limit > 0 && req.Limit < req.Size:
		return cloud.Volume{}, fmt.Errorf("create volume %q: size %s is above the limit %s: %w", req.Name, req.Size, req.Limit, fault.OutOfRange)
	}
	from, err := l.source(req.Source)
	if err != nil {
		return cloud.Volume{}, fmt.Errorf("create volume %q: %w", req.Name, err)
	}
	r, err := l.pool.Create(ctx, pool.NewVolume{Name: req.Name, Size: int64(req.Size), From: from, Tags: pairs(req.Tags)})
	if err != nil {
		return cloud.Volume{}, err
	}
	return l.volume(pool.Entry{ID: r.ID, Kind: pool.Whole, Record: r, Size: r.Size}), nil
}

// FindVolume returns the volume with this name. It waits for a volume that is being copied.
func (l *Local) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	e, err := l.pool.FindByName(ctx, name)
	if err != nil {
		return cloud.Volume{}, err
	}
	return l.volume(e), nil
}

// GetVolume returns the volume with this id. For a volume of another node it returns fault.NotFound.
func (l *Local) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	h, err := pool.ParseHandle(string(id))
	if err != nil || h.Node != l.pool.Node() {
		return cloud.Volume{}, fmt.Errorf("volume %q is not on node %s: %w", id, l.pool.Node(), fault.NotFound)
	}
	e, err := l.pool.Get(ctx, h.ID)
	if err != nil {
		return cloud.Volume{}, err
	}
	if !hasData(e) {
		return cloud.Volume{}, fmt.Errorf("volume %s: %s: %w", id, e.Problem, fault.NotFound)
	}
	return l.volume(e), nil
}

// DeleteVolume removes a volume that is not in use. For a volume of another node, which may exist, it returns
// fault.Precondition: only that node can remove it.
func (l *Local) DeleteVolume(ctx context.Context, id cloud.VolumeID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h, err := pool.ParseHandle(string(id))
	if err != nil {
		return nil // not an id of this backend, so there is no such volume
	}
	if h.Node != l.pool.Node() {
		return l.otherNodeError("delete", "volume", h, fault.Precondition)
	}
	if err := l.pool.Delete(ctx, h.ID); !errors.Is(err, fault.NotFound) {
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
