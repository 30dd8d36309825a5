// Package digitalocean keeps volumes in DigitalOcean: block storage volumes, which are bound to a
// region and attached to droplets of that region.
//
// The facts of the cloud and its requests are in requests.go; package block has the verbs of a volume, and package ops carries changes
// out.
package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/digitalocean/godo"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// Config says whose volumes these are and how to reach the API.
type Config struct {
	block.Config

	// Transport sends the requests; nil is a copy of http.DefaultTransport with bounds.
	Transport http.RoundTripper
}

const (
	defaultEndpoint = "https://api.digitalocean.com"
	// perPage is the largest page of a list.
	perPage = 200
	// maxSize is the largest volume, in GiB.
	maxSize = 16384
)

// defaultLimits are the cloud's documented limits of one token. Only the hour's is in its headers, and that of a minute
// is documented as 5 % of it.
func defaultLimits() []budget.Window {
	return []budget.Window{{Calls: 250, Per: time.Minute, Share: .05}, {Calls: 5000, Per: time.Hour, Told: true}}
}

// Cloud implements cloud.Cloud over the API of DigitalOcean.
type Cloud struct {
	*block.Verbs

	sdk     *godo.Client
	ops     *ops.Runner
	region  string
	cluster string
	prefix  string
	log     *zap.Logger

	regions *ops.Reads[struct{}, map[string]bool]
	seen    cache
	clones  *block.Through[snapshot]
	tagless sync.Once // a warning
	rights  rights
}

var (
	_ cloud.Cloud    = (*Cloud)(nil)
	_ cloud.Modifier = (*Cloud)(nil)
)

// New returns the account that the token opens. It sends nothing yet. What it does in the background
// ends with ctx or Close.
func New(ctx context.Context, cfg Config) (*Cloud, error) {
	if err := cfg.Complete(slug.MatchString, defaultEndpoint, defaultLimits()); err != nil {
		return nil, err
	}
	if u, err := url.Parse(cfg.Endpoint); err != nil || u.Host == "" {
		return nil, fmt.Errorf("endpoint %q is not an address: %w", cfg.Endpoint, fault.InvalidArgument)
	}
	if cfg.Transport == nil {
		cfg.Transport = api.DefaultTransport()
	}
	c := &Cloud{
		region: cfg.Region, cluster: cfg.ClusterID, prefix: cfg.NamePrefix,
		log: cfg.Log, rights: rights{proved: map[string]time.Time{}},
	}
	scoped := client{&api.Client{
		Endpoint: cfg.Endpoint, Base: cfg.Transport, Token: cfg.Token, UserAgent: cfg.UserAgent,
		Governor: cfg.Governor("", cfg.Limits),
		Route:    routeOf, Throttled: throttled, Kind: kindOf, Metrics: cfg.Metrics.Budget, Log: cfg.Log,
	}}
	var err error
	if c.sdk, err = godo.New(&http.Client{Transport: api.Transport(scoped.Do)}); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.InvalidArgument, err)
	}
	running := cfg.Ops(tracker{c})
	running.Lists = true
	c.ops = ops.New(ctx, running)
	c.Verbs = block.New(traits, requests{c}, c.ops, c.volumePage)
	c.regions = ops.NewReads(c.ops, c.readRegions, nil)
	c.clones = c.throughSnapshots(block.NewLeftovers(c.ops, cfg.OrphanAge, cfg.Log))
	c.clones.Every(cfg.SweepEvery, c.Sweep)
	return c, nil
}

// Close ends what is under way in the background within the life of ctx. Calls must have ended.
func (c *Cloud) Close(ctx context.Context) error { return c.ops.Close(ctx) }

// Capabilities says what the cloud can do.
func (c *Cloud) Capabilities() cloud.Capabilities {
	return cloud.Capabilities{
		Attach: true, Expand: true, Modify: true, Snapshots: true, SnapshotZones: profile.DigitalOcean.SnapshotZones, Clones: true,
		Scope:          cloud.Scope(profile.DigitalOcean.Scope),
		SizeStep:       cloud.GiB,
		SmallestVolume: cloud.GiB,
		LargestVolume:  maxSize * cloud.GiB,
		DefaultSize:    16 * cloud.GiB,
	}
}

// Capacity answers fault.Unsupported: the cloud does not say how much space it has.
func (c *Cloud) Capacity(context.Context, string, []cloud.Parameter) (cloud.Bytes, error) {
	return 0, fmt.Errorf("capacity: %w", fault.Unsupported)
}
