// Package digitalocean keeps volumes in DigitalOcean: block storage volumes, which are bound to a
// region and attached to droplets of that region.
//
// It is a translation of the contract in package cloud. Writes are sent first; what a refusal means is
// decided from the state then. Waiting, ordering and the API budget are the shared machinery's. What
// this process remembers of volumes (facts.go) saves requests and carries no correctness.
package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/digitalocean/godo"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	grow "github.com/cloudblock-csi/cloudblock-csi/internal/cloud/wish"
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
	// SweepEvery is how often left-over temporary snapshots are looked for. Zero means an hour,
	// a negative value never.
	SweepEvery time.Duration
	// LeftOverAge is from which age a temporary snapshot belongs to no call any more. Zero means an hour.
	LeftOverAge time.Duration
	// Usual are the shortest plausible durations of actions by kind; nil: learnt from what is seen.
	Usual map[poll.Kind]time.Duration
	// Busy says how to wait while a droplet is busy with somebody else's action. Zero: the queue's own.
	Busy queue.Backoff
	// Limits are the API's limits; nil: what the cloud documents.
	Limits []budget.Window
	// Rand says how much pauses are left to chance; nil: math/rand/v2.
	Rand func() float64
	// UserAgent names the program.
	UserAgent string
	Log       *zap.Logger
	Metrics   remote.Metrics
}

const (
	defaultEndpoint         = "https://api.digitalocean.com"
	defaultOperationTimeout = 5 * time.Minute
	defaultSweep            = time.Hour
	defaultLeftOverAge      = time.Hour
	// perPage is the most that the cloud puts on a page.
	perPage = 200
	// mostSize is the largest volume, in GiB.
	mostSize = 16384
	// slots is how many volumes a droplet can hold.
	slots = 15
)

// defaultLimits are the cloud's documented limits of one token. Only the hour's is in its headers.
func defaultLimits() []budget.Window {
	return []budget.Window{{Calls: 250, Per: time.Minute}, {Calls: 5000, Per: time.Hour, Told: true}}
}

// usualDurations are for the first actions of a process; then they are learnt.
func usualDurations() map[poll.Kind]time.Duration {
	const short = 300 * time.Millisecond
	return map[poll.Kind]time.Duration{kindAttach: short, kindDetach: short, kindResize: short}
}

// Cloud implements cloud.Cloud over the API of DigitalOcean.
type Cloud struct {
	api     *godo.Client
	region  string
	owner   remote.Owner
	prefix  string
	patient time.Duration
	leftOld time.Duration
	log     *zap.Logger

	machines *queue.Queue
	actions  *poll.Poller[actionKey, string]
	states   *poll.Shared[cloud.VolumeID, *godo.Volume]
	wished   *poll.Shared[cloud.VolumeID, *godo.Volume]
	regions  *poll.Shared[struct{}, map[string]bool]
	known    facts
	cloning  remote.InUse // the names of temporary snapshots
	volumes  atomic.Int64 // how many the account has, as far as a list has told

	work    *remote.Work // requests and growths that outlive their call
	growing *grow.Keeper
}

var _ cloud.Cloud = (*Cloud)(nil)

// New returns the account that the token opens. It sends nothing yet. What it does in the background
// ends with ctx or Close.
func New(ctx context.Context, cfg Config) (*Cloud, error) {
	if cfg.Token == nil {
		return nil, fmt.Errorf("no API token: %w", fault.InvalidArgument)
	}
	if !slug.MatchString(cfg.Region) {
		return nil, fmt.Errorf("region %q is not the short name of one, such as fra1: %w", cfg.Region, fault.InvalidArgument)
	}
	cfg = withDefaults(cfg)
	api, err := newAPI(cfg)
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		api: api, region: cfg.Region, owner: remote.Owner{Rule: tagRule, Cluster: cfg.ClusterID}, prefix: cfg.NamePrefix,
		patient: cfg.OperationTimeout, leftOld: cfg.LeftOverAge, log: cfg.Log,
		machines: queue.New(queue.Config{Watch: cfg.OperationTimeout, Busy: cfg.Busy, Rand: cfg.Rand, Metrics: cfg.Metrics.Queue}),
	}
	c.work = remote.NewWork(ctx)
	c.actions = poll.New(poll.Config[actionKey, string]{
		Source:  poll.Source[actionKey, string]{One: c.actionStatus, Many: c.recentActions},
		Usual:   cfg.Usual,
		Rand:    cfg.Rand,
		Metrics: cfg.Metrics.Poll,
	})
	c.states = poll.NewShared(poll.SharedConfig[cloud.VolumeID, *godo.Volume]{
		Source:  poll.Source[cloud.VolumeID, *godo.Volume]{One: c.volume, Many: c.manyVolumes},
		Metrics: cfg.Metrics.Poll,
	})
	c.wished = poll.NewShared(poll.SharedConfig[cloud.VolumeID, *godo.Volume]{
		Source:  c.wishSource(),
		Metrics: cfg.Metrics.Poll,
	})
	c.regions = poll.NewShared(poll.SharedConfig[struct{}, map[string]bool]{
		Source:  poll.Source[struct{}, map[string]bool]{One: c.readRegions},
		Metrics: cfg.Metrics.Poll,
	})
	c.growing = c.newKeeper(cfg)
	if cfg.SweepEvery > 0 {
		c.work.Every(cfg.SweepEvery, c.sweep)
	}
	return c, nil
}

func withDefaults(cfg Config) Config {
	if cfg.Endpoint == "" {
		cfg.Endpoint = defaultEndpoint
	}
	if cfg.OperationTimeout <= 0 {
		cfg.OperationTimeout = defaultOperationTimeout
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = defaultSweep
	}
	if cfg.LeftOverAge <= 0 {
		cfg.LeftOverAge = defaultLeftOverAge
	}
	if cfg.Usual == nil {
		cfg.Usual = usualDurations()
	}
	if cfg.Limits == nil {
		cfg.Limits = defaultLimits()
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Metrics.WishFailed == nil {
		cfg.Metrics.WishFailed = func() {}
	}
	if cfg.Transport == nil {
		cfg.Transport = remote.DefaultTransport()
	}
	return cfg
}

// newAPI builds the client. Above the token stands the budget, above that the SDK, which repeats
// nothing by itself: what may be repeated is known here and not there.
func newAPI(cfg Config) (*godo.Client, error) {
	governor := budget.New(budget.Config{Windows: cfg.Limits, Rand: cfg.Rand, Metrics: cfg.Metrics.Budget})
	transport := &budget.Transport{
		Base: &remote.Sender{Base: cfg.Transport, Token: cfg.Token},
		Route: func(r *http.Request) budget.Route {
			return budget.Route{Template: routeOf(r.URL.Path), Governor: governor}
		},
		Refused: isBudget,
		Metrics: cfg.Metrics.Budget,
	}
	opts := []godo.ClientOpt{godo.SetBaseURL(strings.TrimRight(cfg.Endpoint, "/") + "/")}
	if cfg.UserAgent != "" {
		opts = append(opts, godo.SetUserAgent(cfg.UserAgent))
	}
	// No http.Client.Timeout: it would count the wait for the budget.
	api, err := godo.New(&http.Client{Transport: transport, CheckRedirect: remote.NoRedirect}, opts...)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w: %w", cfg.Endpoint, fault.InvalidArgument, err)
	}
	return api, nil
}

// Close ends what is under way in the background within the life of ctx. Calls must have ended.
func (c *Cloud) Close(ctx context.Context) error {
	c.work.End()
	c.machines.Close()
	c.actions.Close()
	c.states.Close()
	c.wished.Close()
	c.regions.Close()
	return c.work.Wait(ctx)
}

// Capabilities says what the cloud can do.
func (c *Cloud) Capabilities() cloud.Capabilities {
	return cloud.Capabilities{
		Attach: true, Expand: true, Snapshots: true, SnapshotZones: true, Clones: true,
		Scope:          cloud.ScopeRegion,
		SizeStep:       cloud.GiB,
		SmallestVolume: cloud.GiB,
		LargestVolume:  mostSize * cloud.GiB,
		DefaultSize:    16 * cloud.GiB,
		VolumesPerNode: slots,
	}
}

// Capacity answers fault.Unsupported: the cloud does not say how much room it has.
func (c *Cloud) Capacity(context.Context, string) (cloud.Bytes, error) {
	return 0, fmt.Errorf("capacity: %w", fault.Unsupported)
}

// Check reads one volume, which needs the permission that every other read needs.
func (c *Cloud) Check(ctx context.Context) error {
	ctx = budget.WithPriority(ctx, budget.List)
	_, _, err := c.api.Storage.ListVolumes(ctx, &godo.ListVolumeParams{ListOptions: &godo.ListOptions{Page: 1, PerPage: 1}})
	return readError("look at the account's volumes", err)
}

// paged makes of a list of the SDK's one that is read by its pages.
func paged[T any](read func(context.Context, *godo.ListOptions) ([]T, *godo.Response, error)) remote.Pages[T] {
	return func(ctx context.Context, number int) ([]T, bool, error) {
		page, resp, err := read(ctx, &godo.ListOptions{Page: number, PerPage: perPage})
		return page, err == nil && (resp.Links == nil || resp.Links.IsLastPage()), err
	}
}
