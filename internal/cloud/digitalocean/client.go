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
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Config says whose volumes these are and how to reach the API. Token and Region are required.
type Config struct {
	// Token returns the API token, asked for with each request, so that a new one is used at once.
	Token func() (string, error)
	// Endpoint is the API's address without a path; "" is DigitalOcean's own.
	Endpoint string
	// Transport sends the requests; nil is a copy of http.DefaultTransport with bounds.
	Transport http.RoundTripper
	// Region is used when a request names none.
	Region string
	// ClusterID is written on everything made, and whatever carries another one is not ours.
	ClusterID string
	// NamePrefix begins the names of everything made.
	NamePrefix string
	// OperationTimeout bounds waits that no caller bounds. Zero means 5 minutes.
	OperationTimeout time.Duration
	// SweepEvery is how often orphaned temporary snapshots are looked for. Zero means an hour,
	// a negative value never.
	SweepEvery time.Duration
	// OrphanAge is from which age a temporary snapshot belongs to no call any more. Zero means a day:
	// the clocks of the cloud and of another replica may differ by hours.
	OrphanAge time.Duration
	// Tick is the shortest time between two reads of running actions. Zero: package ops' own.
	Tick time.Duration
	// Busy says how to wait while a droplet is busy with another action. Zero: package ops' own.
	Busy ops.Backoff
	// Limits are the API's limits; nil: what the cloud documents.
	Limits []budget.Window
	// Rand says how much pauses are left to chance; nil: math/rand/v2.
	Rand func() float64
	// UserAgent names the program.
	UserAgent string
	Log       *zap.Logger
	Metrics   Metrics
}

// Metrics are those of what all clouds share. Each may be nil.
type Metrics struct {
	Ops    *ops.Metrics
	Budget *budget.Metrics
}

const (
	defaultEndpoint = "https://api.digitalocean.com"
	defaultSweep    = time.Hour
	defaultOrphan   = 24 * time.Hour
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
	if cfg.Token == nil {
		return nil, fmt.Errorf("no API token: %w", fault.InvalidArgument)
	}
	if cfg.ClusterID == "" {
		return nil, fmt.Errorf("no cluster id: %w", fault.InvalidArgument)
	}
	if !slug.MatchString(cfg.Region) {
		return nil, fmt.Errorf("region %q is not the short name of one, such as fra1: %w", cfg.Region, fault.InvalidArgument)
	}
	cfg = withDefaults(cfg)
	if u, err := url.Parse(cfg.Endpoint); err != nil || u.Host == "" {
		return nil, fmt.Errorf("endpoint %q is not an address: %w", cfg.Endpoint, fault.InvalidArgument)
	}
	c := &Cloud{
		region: cfg.Region, cluster: cfg.ClusterID, prefix: cfg.NamePrefix,
		log: cfg.Log, rights: rights{proved: map[string]time.Time{}},
	}
	scoped := client{&api.Client{
		Endpoint: cfg.Endpoint, Base: cfg.Transport, Token: cfg.Token, UserAgent: cfg.UserAgent,
		Governor: budget.New(budget.Config{Windows: cfg.Limits, Rand: cfg.Rand, Metrics: cfg.Metrics.Budget}),
		Route:    routeOf, Throttled: throttled, Kind: kindOf, Metrics: cfg.Metrics.Budget, Log: cfg.Log,
	}}
	var err error
	if c.sdk, err = godo.New(&http.Client{Transport: api.Transport(scoped.Do)}); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.InvalidArgument, err)
	}
	c.ops = ops.New(ctx, ops.Config{
		Tracker: tracker{c}, Lists: true, Timeout: cfg.OperationTimeout, Tick: cfg.Tick, Busy: cfg.Busy, Rand: cfg.Rand, Metrics: cfg.Metrics.Ops,
	})
	c.Verbs = block.New(traits, requests{c}, c.ops, c.volumePage)
	c.regions = ops.NewReads(c.ops, c.readRegions, nil)
	c.clones = c.throughSnapshots(block.NewLeftovers(c.ops, cfg.OrphanAge, cfg.Log))
	c.clones.Every(cfg.SweepEvery, c.Sweep)
	return c, nil
}

func withDefaults(cfg Config) Config {
	if cfg.Endpoint == "" {
		cfg.Endpoint = defaultEndpoint
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = defaultSweep
	}
	if cfg.OrphanAge <= 0 {
		cfg.OrphanAge = defaultOrphan
	}
	if cfg.Limits == nil {
		cfg.Limits = defaultLimits()
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Transport == nil {
		cfg.Transport = api.DefaultTransport()
	}
	return cfg
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
