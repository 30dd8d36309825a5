// Package linode keeps volumes in Linode (Akamai): block storage volumes, which are bound to a region and
// attached to Linodes of that region.
//
// The facts of the cloud and its requests are in requests.go; package block has the verbs of a volume, and package ops carries changes
// out. A change shows in the volume
// itself: its status, and for an attachment the Linode's id together with the device being ready.
package linode

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/linode/linodego"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// listTick leaves half of the lists that the cloud allows, 200 a minute, to others with the token.
const listTick = 600 * time.Millisecond

// Config says whose volumes these are and how to reach the API. Token and Region are required.
type Config struct {
	// Token returns the API token, asked for with each request, so that a new one is used at once.
	Token func() (string, error)
	// Endpoint is the API's address without a path; "" is Linode's own.
	Endpoint string
	// Transport sends the requests; nil is a copy of http.DefaultTransport with bounds.
	Transport http.RoundTripper
	// Region is used when a request names none.
	Region string
	// ClusterID is written on everything made, and whatever carries another one is not ours.
	ClusterID string
	// Persist says whether attachments survive a boot of their Linode; "" is PersistAuto.
	Persist Persist
	// KubernetesTags writes the names of Kubernetes' objects on volumes.
	KubernetesTags bool
	// NamePrefix begins the labels of everything made.
	NamePrefix string
	// OperationTimeout bounds waits that no caller bounds. Zero means 5 minutes.
	OperationTimeout time.Duration
	// SweepEvery is how often orphaned copies are looked for. Zero means an hour, a negative value never.
	SweepEvery time.Duration
	// OrphanAge is for how long an unfinished copy is ready and unchanged until it belongs to no call any more. Zero means a day.
	OrphanAge time.Duration
	// Lateness is for how long a request may take effect after the read that it was decided by. Zero means 2 minutes.
	Lateness time.Duration
	// Now is the program's clock; nil: time.Now.
	Now func() time.Time
	// Tick is the shortest time between two reads of running operations. Zero: listTick.
	Tick time.Duration
	// Busy says how to wait while a Linode is busy with another change. Zero: package ops' own.
	Busy ops.Backoff
	// Limits are those of all requests, and Classes the limits of some of them, which hold too. Nil: what the
	// cloud documents.
	Limits  []budget.Window
	Classes *Classes
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

// Classes are the limits of the requests that the cloud counts apart: creates of volumes, lists, and all others.
type Classes struct{ Create, List, Other []budget.Window }

// documented are the cloud's own, each of which its headers speak of.
func documented() *Classes {
	told := func(calls int, alike bool) []budget.Window {
		return []budget.Window{{Calls: calls, Per: time.Minute, Told: true, Alike: alike}}
	}
	return &Classes{Create: told(100, true), List: told(200, false), Other: told(1600, false)}
}

const (
	defaultEndpoint = "https://api.linode.com"
	defaultSweep    = time.Hour
	defaultOrphan   = 24 * time.Hour
	// perPage is the largest page of a list, minPage the smallest.
	perPage, minPage = 500, 25
	// minSize and maxSize are the sizes of the smallest and the largest volume, in GiB.
	minSize, maxSize = 10, 16384
)

// ParamEncrypted is the StorageClass parameter about encryption at rest: true or false. Without it the cloud's default
// holds, and a clone inherits its source's.
const ParamEncrypted = "encrypted"

// Cloud implements cloud.Cloud over the API of Linode.
type Cloud struct {
	*block.Verbs

	noSnapshots

	sdk       *linodego.Client
	ops       *ops.Runner
	region    string
	cluster   string
	prefix    string
	orphanAge time.Duration
	lateness  time.Duration
	now       func() time.Time
	log       *zap.Logger

	kubernetesTags bool
	persist        persistence

	creates, lists, others *budget.Governor

	regions *ops.Reads[struct{}, map[string]capabilities]
	seen    cache
	clones  *block.Leftovers // unfinished copies, by their labels
	kept    times            // when calls have kept sweeps off old copies
	watched watch            // the unfinished copies that sweeps have seen
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
		return nil, fmt.Errorf("region %q is not the id of one, such as us-ord: %w", cfg.Region, fault.InvalidArgument)
	}
	if err := CheckPersist(cfg.Persist); err != nil {
		return nil, err
	}
	cfg = withDefaults(cfg)
	if u, err := url.Parse(cfg.Endpoint); err != nil || u.Host == "" {
		return nil, fmt.Errorf("endpoint %q is not an address: %w", cfg.Endpoint, fault.InvalidArgument)
	}
	governor := func(name string, windows []budget.Window) *budget.Governor {
		return budget.New(budget.Config{Name: name, Windows: windows, Rand: cfg.Rand, Metrics: cfg.Metrics.Budget})
	}
	c := &Cloud{
		region: cfg.Region, cluster: cfg.ClusterID, prefix: cfg.NamePrefix, kubernetesTags: cfg.KubernetesTags,
		persist:   persistence{mode: cfg.Persist},
		orphanAge: cfg.OrphanAge, lateness: cmp.Or(cfg.Lateness, lateness), now: cfg.Now, log: cfg.Log,
		creates: governor("create", cfg.Classes.Create), lists: governor("list", cfg.Classes.List), others: governor("other", cfg.Classes.Other),
	}
	client := &api.Client{
		Endpoint: cfg.Endpoint, Base: cfg.Transport, Token: cfg.Token, UserAgent: cfg.UserAgent,
		Governor: governor("", cfg.Limits), Class: c.class, Route: routeOf, Refusal: refusalOf, Kind: kindOf, Metrics: cfg.Metrics.Budget,
		Throttled: func(api.Request, *http.Response, *api.Answer) bool { return true }, Log: cfg.Log,
	}
	c.sdk = newSDK(api.Transport(client.Do))
	c.ops = ops.New(ctx, ops.Config{
		Tracker: tracker{c}, Lists: true, Timeout: cfg.OperationTimeout, Tick: cmp.Or(cfg.Tick, listTick), Busy: cfg.Busy, Rand: cfg.Rand, Metrics: cfg.Metrics.Ops,
	})
	c.Verbs = block.New(c.traits(), requests{c}, c.ops, nil)
	c.regions = ops.NewReads(c.ops, c.readRegions, nil)
	c.clones = block.NewLeftovers(c.ops, cfg.OrphanAge, cfg.Log)
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
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Persist == "" {
		cfg.Persist = PersistAuto
	}
	if cfg.Limits == nil {
		cfg.Limits = []budget.Window{{Calls: 1600, Per: time.Minute}}
	}
	if cfg.Classes == nil {
		cfg.Classes = documented()
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

// Capabilities says what the cloud can do. How many volumes a Linode can hold depends on its memory and its
// local disks, so the node says it.
func (c *Cloud) Capabilities() cloud.Capabilities {
	return cloud.Capabilities{
		Attach: true, Expand: true, Modify: true, Clones: true, Health: true,
		Scope:          cloud.Scope(profile.Linode.Scope),
		SizeStep:       cloud.GiB,
		SmallestVolume: minSize * cloud.GiB,
		LargestVolume:  maxSize * cloud.GiB,
		DefaultSize:    20 * cloud.GiB,
		Parameters:     []string{ParamEncrypted},
	}
}

// Capacity answers fault.Unsupported: the cloud does not say how much space it has.
func (c *Cloud) Capacity(context.Context, string, []cloud.Parameter) (cloud.Bytes, error) {
	return 0, fmt.Errorf("capacity: %w", fault.Unsupported)
}

// noSnapshotsAdvice goes with the refusal of a snapshot.
const noSnapshotsAdvice = "Linode has no snapshots of volumes; make a claim with the volume's claim as its dataSource instead, which copies it"

// noSnapshots says why there are none, and what there is instead.
type noSnapshots struct{ cloud.NoSnapshots }

// CreateSnapshot answers fault.Unsupported, and says what to do instead.
func (noSnapshots) CreateSnapshot(context.Context, cloud.CreateSnapshotRequest) (cloud.Snapshot, error) {
	return cloud.Snapshot{}, fmt.Errorf("snapshots: %w: %s", fault.Unsupported, noSnapshotsAdvice)
}
