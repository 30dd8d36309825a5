package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
)

// accountInventory has all objects in a cloud that the credentials may see.
type accountInventory struct {
	cloud.Cloud

	cluster string
}

func openAccount(ctx context.Context, cfg *volumesConfig, stderr io.Writer) (in inventory, end func(), err error) {
	log, err := driver.NewLogger(cfg.LogLevel, "console", stderr)
	if err != nil {
		return nil, nil, err
	}
	c, closeCloud, err := cfg.backend.open(ctx, cfg.config, surroundings{log: log, registry: prometheus.NewRegistry()})
	if err != nil {
		return nil, nil, fmt.Errorf("open --cloud %s: %w", cfg.Cloud, err)
	}
	end = func() {
		if err := closeCloud(context.WithoutCancel(ctx)); err != nil {
			log.Warn("close the backend", zap.Error(err))
		}
	}
	if cfg.publishedPrice {
		var usual float64
		if usual, cfg.regions, err = cfg.backend.prices(ctx, c); err != nil {
			end()
			return nil, nil, err
		}
		cfg.price = &usual
	}
	return accountInventory{c, cfg.clusterID}, end, nil
}

func (a accountInventory) list(ctx context.Context) ([]row, error) {
	rows := []row{}
	for page := (cloud.Page{}); ; {
		list, err := a.ListVolumes(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range list.Volumes {
			v := &list.Volumes[i]
			r := row{
				ID: string(v.ID), Kind: kindVolume, Name: v.Name, Size: int64(v.Size), Zone: v.Zone, AttachedTo: v.AttachedTo, Problem: v.Health.Message,
			}
			if !v.Created.IsZero() {
				r.Created = &v.Created
			}
			for _, t := range v.Tags {
				r.setTag(t.Key, t.Value)
			}
			rows = append(rows, a.marked(r, v.Mark))
		}
		if page.Token = list.Next; page.Token == "" {
			break
		}
	}
	for page := (cloud.Page{}); a.Capabilities().Snapshots; {
		list, err := a.ListSnapshots(ctx, "", page)
		if err != nil {
			return nil, err
		}
		for _, s := range list.Snapshots {
			rows = append(rows, a.marked(row{
				ID: string(s.ID), Kind: kindSnapshot, Name: s.Name, Size: int64(s.Size), Zone: s.Zone, Created: &s.Created, SnapshotOf: string(s.Volume),
			}, s.Mark))
		}
		if page.Token = list.Next; page.Token == "" {
			break
		}
	}
	return rows, nil
}

// marked sets the fields of a row that follow from the object's mark.
func (a accountInventory) marked(r row, m cloud.Mark) row {
	r.Cluster, r.Temporary, r.made = m.Cluster, m.Temporary, m.Driver
	r.Ours = m.Driver && m.Cluster == a.cluster
	return r
}

func (a accountInventory) remove(ctx context.Context, r *row) error {
	if r.Kind == kindSnapshot {
		return a.DeleteSnapshot(ctx, cloud.SnapshotID(r.ID))
	}
	return a.DeleteVolume(ctx, cloud.VolumeID(r.ID))
}

// poolInventory has all objects in a node's pools, including orphans.
type poolInventory struct{ pools *pools.Set }

func openPools(ctx context.Context, cfg *volumesConfig) (inventory, error) {
	configs := cfg.pools()
	for i := range configs {
		configs[i].MustExist = true
	}
	pools, err := pools.Open(ctx, configs...)
	return poolInventory{pools}, err
}

// list returns the contents of the readable pools, with an error for each of the others.
func (in poolInventory) list(ctx context.Context) ([]row, error) {
	usable, missing := in.pools.Pools(ctx)
	rows := []row{}
	for _, p := range usable {
		entries, err := p.List(ctx)
		snapshots, snapshotsErr := p.ListSnapshots(ctx)
		missing = errors.Join(missing, err, snapshotsErr)
		for _, e := range append(entries, snapshots...) {
			rows = append(rows, poolRow(ctx, p, e))
		}
	}
	return rows, missing
}

func poolRow(ctx context.Context, p pool.Storage, e pool.Entry) row {
	rec := e.Record
	r := row{
		Pool: p.Name(), File: e.File, Kind: kindVolume, State: string(e.Kind), Problem: e.Problem, Name: rec.Name, Size: e.Size,
		Allocated: &e.Allocated, InUse: new(false), Ours: true, damaged: e.Kind != pool.Whole && e.Kind != pool.UnderWay && e.Kind != pool.Newer,
	}
	for _, t := range rec.Tags {
		r.setTag(t.Name, t.Value)
	}
	if e.ID != "" {
		r.ID = p.Handle(e.ID).String()
	}
	if e.Snapshot {
		r.Kind, r.ID = kindSnapshot, p.Handle(e.ID).Snapshot()
	}
	if rec.Volume != "" {
		r.SnapshotOf = p.Handle(rec.Volume).String()
	}
	switch from := rec.SourceOf(); {
	case from.Volume != "":
		r.Source = p.Handle(from.Volume).String()
	case from.Snapshot != "":
		r.Source = p.Handle(from.Snapshot).Snapshot()
	}
	if !rec.Created.IsZero() {
		r.Created = &rec.Created
	}
	if e.Kind == pool.Whole {
		r.State, r.Size = string(rec.State), rec.Size
		if rec.GrowTo > 0 {
			r.State = "growing"
		}
	}
	if e.Kind == pool.NoImage || e.Kind == pool.Unknown || e.Kind == pool.UnderWay {
		return r
	}
	// An image that cannot be checked must not hide the others; its row has the error instead.
	user, err := p.InUse(ctx, e)
	if err != nil && r.Problem == "" {
		r.Problem = err.Error()
	}
	r.UsedBy, *r.InUse = user, user != ""
	return r
}

func (in poolInventory) remove(ctx context.Context, r *row) error {
	usable, missing := in.pools.Pools(ctx)
	for _, p := range usable {
		if p.Name() != r.Pool {
			continue
		}
		if r.Kind == kindSnapshot {
			h, err := pool.ParseSnapshotHandle(r.ID)
			if err != nil {
				return err
			}
			return p.RemoveSnapshot(ctx, h.ID)
		}
		h, err := pool.ParseHandle(r.ID)
		if err != nil {
			return err
		}
		return p.Remove(ctx, h.ID)
	}
	return missing
}
