// Package linode keeps volumes in Linode (Akamai): block storage volumes, which are bound to a region and
// attached to Linodes of that region.
//
// It is a translation of the contract in package cloud. Writes are sent first; what a refusal means is
// decided from the state then, because almost every refusal of this API has the same status. A change shows
// in the volume itself: its status, and for an attachment the Linode's id with the word that the device is
// there. Waiting, ordering and the API budget are the shared machinery's. What this process remembers of
// volumes (facts.go) saves requests and carries no correctness.
package linode

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/linode/linodego"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

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
	// NamePrefix begins the labels of everything made.
	NamePrefix string
	// OperationTimeout bounds waits that no caller bounds. Zero means 5 minutes.
	OperationTimeout time.Duration
	// SweepEvery is how often left-over copies are looked for. Zero means an hour, a negative value never.
	SweepEvery time.Duration
	// LeftOverAge is from which age an unfinished copy belongs to no call any more. Zero means an hour.
	LeftOverAge time.Duration
	// Gather is how long a look at the edge of a change waits for others. Zero means 50 ms, which is little against
	// a change's own time.
	Gather time.Duration
	// Usual are the shortest plausible durations of changes by kind; nil: learnt from what is seen.
	Usual map[poll.Kind]time.Duration
	// Busy says how to wait while a Linode is busy with somebody else's change. Zero: the queue's own.
	Busy queue.Backoff
	// Limits are the most that the API is asked in all, and Classes the limits of some of it that hold beside
	// them. Nil: what the cloud documents.
	Limits  []budget.Window
	Classes *Classes
	// Rand says how much pauses are left to chance; nil: math/rand/v2.
	Rand func() float64
	// UserAgent names the program.
	UserAgent string
	Log       *zap.Logger
	Metrics   remote.Metrics
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
	defaultEndpoint         = "https://api.linode.com"
	apiVersion              = "v4"
	defaultOperationTimeout = 5 * time.Minute
	defaultSweep            = time.Hour
	defaultLeftOverAge      = time.Hour
	// perPage is the most that the cloud puts on a page.
	perPage = 500
	// leastPage is the least that it takes as the size of one.
	leastPage = 25
	// leastSize and mostSize are the sizes of the smallest and the largest volume, in GiB.
	leastSize, mostSize = 10, 16384
	defaultGather       = 50 * time.Millisecond
	// shownFor is for how long a state that was read may decide about a change that the API does not check.
	shownFor = 2 * time.Second
	// provenFor is the same for a page of several that proves that it is young.
	provenFor = time.Second
)

// ParamEncrypted is the StorageClass parameter that asks for encryption at rest: true, or false, which is
// the default whatever a region's own is.
const ParamEncrypted = "encrypted"

// Cloud implements cloud.Cloud over the API of Linode.
type Cloud struct {
	noSnapshots

	api     linodego.Client
	region  string
	prefix  string
	owner   remote.Owner
	patient time.Duration
	leftOld time.Duration
	log     *zap.Logger

	work     *remote.Work
	machines *queue.Queue
	changes  *poll.Poller[int, *volume]
	states   *poll.Shared[int, *volume]
	// edges are looks right before a detach and right after a delete. They come in flocks, with every list that
	// shows the end of some changes, so each waits a little for others.
	edges   *poll.Shared[int, *volume]
	regions atlas
	known   facts
	copies  copies
	volumes atomic.Int64 // how many the account has, as far as a list has told
}

var _ cloud.Cloud = (*Cloud)(nil)

// New returns the account that the token opens. It sends nothing yet. What it does in the background
// ends with ctx or Close.
func New(ctx context.Context, cfg Config) (*Cloud, error) {
	if cfg.Token == nil {
		return nil, fmt.Errorf("no API token: %w", fault.InvalidArgument)
	}
	if !slug.MatchString(cfg.Region) {
		return nil, fmt.Errorf("region %q is not the id of one, such as us-ord: %w", cfg.Region, fault.InvalidArgument)
	}
	cfg = withDefaults(cfg)
	c := &Cloud{
		region: cfg.Region, prefix: cfg.NamePrefix, owner: remote.Owner{Rule: tagRule, Cluster: cfg.ClusterID},
		patient: cfg.OperationTimeout, leftOld: cfg.LeftOverAge, log: cfg.Log, work: remote.NewWork(ctx),
		machines: queue.New(queue.Config{Watch: cfg.OperationTimeout, Busy: cfg.Busy, Rand: cfg.Rand, Metrics: cfg.Metrics.Queue}),
	}
	if err := c.connect(cfg); err != nil {
		c.work.End()
		return nil, err
	}
	c.changes = poll.New(poll.Config[int, *volume]{
		Source: poll.Source[int, *volume]{One: c.lookAt, Many: c.lookAtSeveral}, Usual: cfg.Usual, Rand: cfg.Rand, Metrics: cfg.Metrics.Poll,
	})
	c.edges = poll.NewShared(poll.SharedConfig[int, *volume]{
		Source: poll.Source[int, *volume]{One: c.lookAt, Many: c.edgesOf}, Tick: cfg.Gather, Metrics: cfg.Metrics.Poll,
	})
	c.states = poll.NewShared(poll.SharedConfig[int, *volume]{
		Source:  poll.Source[int, *volume]{One: c.read, Many: c.several},
		Metrics: cfg.Metrics.Poll,
	})
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
	if cfg.Gather <= 0 {
		cfg.Gather = defaultGather
	}
	if cfg.LeftOverAge <= 0 {
		cfg.LeftOverAge = defaultLeftOverAge
	}
	if cfg.Usual == nil {
		cfg.Usual = usualDurations()
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
		cfg.Transport = remote.DefaultTransport()
	}
	return cfg
}

// Close ends what is under way in the background within the life of ctx. Calls must have ended.
func (c *Cloud) Close(ctx context.Context) error {
	c.work.End()
	c.machines.Close()
	c.changes.Close()
	c.edges.Close()
	c.states.Close()
	return c.work.Wait(ctx)
}

// Capabilities says what the cloud can do. How many volumes a Linode can hold depends on its memory and its
// local disks, so the node says it.
func (c *Cloud) Capabilities() cloud.Capabilities {
	return cloud.Capabilities{
		Attach: true, Expand: true, Clones: true,
		Scope:          cloud.ScopeRegion,
		SizeStep:       cloud.GiB,
		SmallestVolume: leastSize * cloud.GiB,
		LargestVolume:  mostSize * cloud.GiB,
		DefaultSize:    20 * cloud.GiB,
		Parameters:     []string{ParamEncrypted},
	}
}

// Capacity answers fault.Unsupported: the cloud does not say how much room it has.
func (c *Cloud) Capacity(context.Context, string) (cloud.Bytes, error) {
	return 0, fmt.Errorf("capacity: %w", fault.Unsupported)
}

// Check reads the shortest page of volumes, which needs the permission that every other read needs.
func (c *Cloud) Check(ctx context.Context) error {
	_, _, err := c.volumePage(budget.WithPriority(ctx, budget.List), listing{number: 1, size: leastPage})
	return apiErrors.Read("look at the account's volumes", err)
}

// bounded gives a call that has no deadline the operation's.
func (c *Cloud) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.patient)
}

// gib rounds a size up to what the cloud counts in.
func gib(size cloud.Bytes) int64 {
	if size > math.MaxInt64-cloud.GiB {
		return math.MaxInt64 / int64(cloud.GiB)
	}
	return int64((size + cloud.GiB - 1) / cloud.GiB)
}
