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
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/linode/linodego"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// listTick leaves half of the lists that the cloud allows, 200 a minute, to others with the token.
const listTick = 600 * time.Millisecond

// Config says whose volumes these are and how to reach the API.
type Config struct {
	block.Config

	// Transport sends the requests; nil is a copy of http.DefaultTransport with bounds.
	Transport http.RoundTripper
	// Persist says whether attachments survive a boot of their Linode; "" is PersistAuto.
	Persist Persist
	// KubernetesTags writes the names of Kubernetes' objects on volumes.
	KubernetesTags bool
	// Lateness is for how long a request may take effect after the read that it was decided by. Zero means 2 minutes.
	Lateness time.Duration
	// Now is the program's clock; nil: time.Now.
	Now func() time.Time
	// Classes are limits of some requests, which hold besides those of all. Nil: what the cloud documents.
	Classes *Classes
}

// Classes are the limits of the requests that the cloud counts apart: creates of volumes, lists, and all others.
type Classes struct{ Create, List, Other []budget.Window }

// documented are the cloud's own, each of which its headers speak of.
func documented() *Classes {
	told := func(calls int, alike bool) []budget.Window {
		return []budget.Window{{Calls: calls, Per: time.Minute, FromHeaders: true, SingleKind: alike}}
	}
	return &Classes{Create: told(100, true), List: told(200, false), Other: told(1600, false)}
}

const (
	defaultEndpoint = "https://api.linode.com"
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
	labels  block.Cache[int, string]    // of volumes, for filters of lists
	clones  *block.Leftovers            // unfinished copies, by their labels
	kept    block.Cache[int, time.Time] // when calls have kept sweeps off old copies
	watched watch                       // the unfinished copies that sweeps have seen
}

var _ cloud.Cloud = (*Cloud)(nil)

// New returns the account that the token opens. It sends nothing yet. What it does in the background
// ends with ctx or Close.
func New(ctx context.Context, cfg Config) (*Cloud, error) {
	if err := cfg.Complete(slug.MatchString, defaultEndpoint, []budget.Window{{Calls: 1600, Per: time.Minute}}); err != nil {
		return nil, err
	}
	if err := CheckPersist(cfg.Persist); err != nil {
		return nil, err
	}
	cfg = withDefaults(cfg)
	if u, err := url.Parse(cfg.Endpoint); err != nil || u.Host == "" {
		return nil, fmt.Errorf("endpoint %q is not an address: %w", cfg.Endpoint, fault.InvalidArgument)
	}
	c := &Cloud{
		region: cfg.Region, cluster: cfg.ClusterID, prefix: cfg.NamePrefix, kubernetesTags: cfg.KubernetesTags,
		persist:   persistence{mode: cfg.Persist},
		orphanAge: cfg.OrphanAge, lateness: cfg.Lateness, now: cfg.Now, log: cfg.Log,
		creates: cfg.Governor("create", cfg.Classes.Create), lists: cfg.Governor("list", cfg.Classes.List), others: cfg.Governor("other", cfg.Classes.Other),
	}
	client := &api.Client{
		Endpoint: cfg.Endpoint, Base: cfg.Transport, Token: cfg.Token, UserAgent: cfg.UserAgent,
		Governor: cfg.Governor("", cfg.Limits), Class: c.class, Route: routeOf, Refusal: refusalOf, Kind: kindOf, Metrics: cfg.Metrics.Budget,
		Throttled: func(api.Request, *http.Response, *api.Answer) bool { return true }, Log: cfg.Log,
	}
	c.sdk = newSDK(api.Transport(client.Do))
	running := cfg.Ops(tracker{c})
	running.Lists, running.Tick = true, cmp.Or(cfg.Tick, listTick)
	c.ops = ops.New(ctx, running)
	c.Verbs = block.New(c.traits(), requests{c}, c.ops, nil)
	c.regions = ops.NewReads(c.ops, c.readRegions, nil)
	c.clones = block.NewLeftovers(c.ops, cfg.OrphanAge, cfg.Log)
	c.clones.Every(cfg.SweepEvery, c.Sweep)
	return c, nil
}

func withDefaults(cfg Config) Config {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Classes == nil {
		cfg.Classes = documented()
	}
	if cfg.Transport == nil {
		cfg.Transport = api.DefaultTransport()
	}
	cfg.Persist, cfg.Lateness = cmp.Or(cfg.Persist, PersistAuto), cmp.Or(cfg.Lateness, lateness)
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

// eventsScope is the scope for the events of the account.
const eventsScope = "events:read_only"

// scopes are those that the API token needs; docs/backends/linode.md says what for.
var scopes = []string{"volumes:read_write", "linodes:read_write", eventsScope}

// Check reads the shortest page of volumes. Each answer of the API says which scopes the token has, so this one also
// shows which of the others are missing. What the token's user may do does not show.
func (c *Cloud) Check(ctx context.Context) error {
	var header http.Header
	_, _, err := readPage(ctx, listOf[volume]{
		doing: "read the account's volumes", call: c.sdk.ListVolumes, priority: budget.List, received: &header,
	}, 1, minPage)
	missing := missingScopes(header.Get("X-OAuth-Scopes"))
	switch {
	case len(missing) == 0 || err != nil && !errors.Is(err, fault.Denied):
		return err
	case err == nil:
		return fmt.Errorf("%w: the API token lacks the scope %s", fault.Denied, strings.Join(missing, " and "))
	default:
		return fmt.Errorf("the API token lacks the scope %s: %w", strings.Join(missing, " and "), err)
	}
}

// missingScopes returns the scopes that the header lacks. A header that is absent says nothing.
func missingScopes(header string) []string {
	has := strings.FieldsFunc(header, func(r rune) bool { return r == ' ' || r == ',' })
	if len(has) == 0 || slices.Contains(has, "*") {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool {
		return slices.Contains(has, scope) || slices.Contains(has, strings.Replace(scope, ":read_only", ":read_write", 1))
	})
}

// CheckRegion reads whether the backend's own region has volumes; it is fault.NoZone if not.
func (c *Cloud) CheckRegion(ctx context.Context) error {
	regions, err := c.regions.Get(ctx, struct{}{})
	if err == nil && !regions[c.region].volumes {
		err = fmt.Errorf("the region %s lacks the capability %q, or does not exist: %w", c.region, hasVolumes, fault.NoZone)
	}
	return err
}
