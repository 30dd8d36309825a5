package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/relocate"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// runRelocate is the sub-command "relocate".
func runRelocate(ctx context.Context, args []string, environ driver.Environment, stdout, stderr io.Writer) error {
	var cfg config
	var group string
	var unowned bool
	return relocate.Command{
		Flags: cfg.flags(), Others: nodeSettings, Names: &cfg.Names,
		Own: func(fs *flag.FlagSet) {
			fs.StringVar(&group, "placement-group", "", "the `ID` of a placement group in the zone, for a volume that is in one")
			fs.BoolVar(&unowned, "unowned", false, "move also a volume on which nothing says whose it is, such as one of the vendor's driver")
		},
		Validate: func() error { return errors.Join(cfg.validate(environ), cfg.checkRelocate()) },
		Move: func(ctx context.Context, volume, zone string, step func(string)) error {
			c, end, err := openCloud(ctx, cfg, stderr)
			if err != nil {
				return err
			}
			defer end()
			step("the cloud to show volume " + volume)
			v, err := middleware.Stack(c, wait.Backoff{}).GetVolume(ctx, cloud.VolumeID(volume))
			if err != nil {
				return err
			}
			r := accountInventory{c, cfg.clusterID}.marked(row{ID: volume, Kind: kindVolume}, v.Mark)
			if err := r.owned("relocate", cfg.clusterID, unowned); err != nil {
				return err
			}
			return cfg.backend.relocate(ctx, c, relocation{volume, zone, group}, step)
		},
	}.Run(ctx, args, environ, stdout, stderr)
}

// checkRelocate returns an error, with the clouds that move volumes, if --cloud is another one.
func (c *config) checkRelocate() error {
	able := slices.DeleteFunc(slices.Sorted(maps.Keys(backends)), func(name string) bool { return backends[name].relocate == nil })
	if _, known := backends[c.Cloud]; !known || slices.Contains(able, c.Cloud) {
		return nil
	}
	return fmt.Errorf("relocate: --cloud %s moves no volumes to another zone; these do: %s", c.Cloud, strings.Join(able, ", "))
}

// accountInventory has all objects in a cloud that the credentials may see.
type accountInventory struct {
	cloud.Cloud

	cluster string
}

// openCloud opens the backend of a sub-command that ends soon.
func openCloud(ctx context.Context, cfg config, stderr io.Writer) (c cloud.Cloud, end func(), err error) {
	log, err := driver.NewLogger(cfg.LogLevel, "console", stderr)
	if err != nil {
		return nil, nil, err
	}
	c, closeCloud, err := cfg.backend.open(ctx, cfg, surroundings{log: log, registry: prometheus.NewRegistry()})
	if err != nil {
		return nil, nil, fmt.Errorf("open --cloud %s: %w", cfg.Cloud, err)
	}
	return c, func() {
		if err := closeCloud(context.WithoutCancel(ctx)); err != nil {
			log.Warn("close the backend", zap.Error(err))
		}
	}, nil
}

func openAccount(ctx context.Context, cfg *volumesConfig, stderr io.Writer) (in inventory, end func(), err error) {
	c, end, err := openCloud(ctx, cfg.config, stderr)
	if err != nil {
		return nil, nil, err
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
		entries, err := in.pools.List(ctx, p, pool.Storage.List)
		snapshots, snapshotsErr := in.pools.List(ctx, p, pool.Storage.ListSnapshots)
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
	if e.Snapshot {
		r.Kind = kindSnapshot
	}
	switch {
	case e.ID == "":
	case e.Snapshot:
		r.ID = p.Handle(e.ID).Snapshot()
	default:
		r.ID = p.Handle(e.ID).String()
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
	if e.Kind == pool.Unknown || e.Kind == pool.UnderWay {
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
