// Package backend makes the backend of an emulated account in the process of a benchmark or a chaos run.
package backend

import (
	"context"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
)

// Config is what every backend can be told; what is zero is the backend's own.
type Config struct {
	// Way to the API; zero: the account's own in memory.
	Way       accounts.Way
	ClusterID string
	// SweepEvery is how often orphans are looked for, OrphanAge from which age something is one.
	SweepEvery, OrphanAge time.Duration
	Limits                []budget.Window
	Budget                *budget.Metrics
	// Rand says how much pauses are left to chance.
	Rand func() float64
	// Tick is how often operations are read.
	Tick time.Duration
	// KubernetesTags writes the names of claims on volumes of Linode; the other clouds always have them.
	KubernetesTags bool
}

// Backend is a cloud that is closed in the end.
type Backend interface {
	cloud.Cloud
	Close(context.Context) error
}

// Open makes the backend of an account.
func Open(ctx context.Context, a accounts.Account, cfg Config) (Backend, error) {
	if cfg.Way.Web == nil && cfg.Way.Dial == nil {
		cfg.Way = a.Memory()
	}
	all := block.Config{
		Token: func() (string, error) { return a.Token(), nil }, Endpoint: a.URL(), Region: a.Region(), ClusterID: cfg.ClusterID, Rand: cfg.Rand,
		SweepEvery: cfg.SweepEvery, OrphanAge: cfg.OrphanAge, Limits: cfg.Limits, Tick: cfg.Tick, Metrics: block.Metrics{Budget: cfg.Budget},
	}
	switch a := a.(type) {
	case accounts.DigitalOcean:
		return digitalocean.New(ctx, digitalocean.Config{Config: all, Transport: cfg.Way.Web})
	case *accounts.Linode:
		return linode.New(ctx, linode.Config{Config: all, Transport: cfg.Way.Web, KubernetesTags: cfg.KubernetesTags, Snapshots: a.KeepsClones})
	case *accounts.Yandex:
		all.Endpoint = "http://127.0.0.1:1" // no socket
		return yandex.New(ctx, yandex.Config{Config: all, Dial: cfg.Way.Dial, Folder: a.Folder})
	}
	return nil, fmt.Errorf("there is no backend for %T", a)
}
