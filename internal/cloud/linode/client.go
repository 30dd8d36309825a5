// Package linode keeps volumes in Linode (Akamai): block storage volumes, which are bound to a region and
// attached to Linodes of that region.
//
// The cloud's facts and requests are in requests.go; package block has attach, detach, growth, deletion and find, and package ops runs the
// changes. A change shows in the volume itself: in its status, and for an attachment in the Linode's id and a device that is ready.
package linode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
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

// Config configures a Cloud.
type Config struct {
	block.Config

	// Transport sends the requests. It is required.
	Transport http.RoundTripper
	// Persist is whether attachments survive a boot of their Linode; "" means PersistAuto.
	Persist Persist
	// Snapshots keeps copies of volumes as snapshots. Otherwise there are none.
	Snapshots bool
	// KubernetesTags tags volumes with the names of Kubernetes objects.
	KubernetesTags bool
	// Lateness is how long after the deciding read a request may take effect. 0 means 2 minutes.
	Lateness time.Duration
	// Now is the program's clock; nil: time.Now.
	Now func() time.Time
	// Classes are additional limits of some requests; nil: the documented ones.
	Classes *Classes
}

// Classes are the limits of the requests that the cloud counts separately: creates of volumes, lists, and all others.
type Classes struct{ Create, List, Other []budget.Window }

// documented are the cloud's documented limits; rate-limit headers describe each.
func documented() *Classes {
	told := func(calls int, alike bool) []budget.Window {
		return []budget.Window{{Calls: calls, Per: time.Minute, FromHeaders: true, SingleKind: alike}}
	}
	return &Classes{Create: told(100, true), List: told(200, false), Other: told(1600, false)}
}

const (
	defaultEndpoint = "https://api.linode.com"
	// perPage is the maximum size of a page, minPage the minimum.
	perPage, minPage = 500, 25
	// minSize and maxSize are the minimum and maximum size of a volume in GiB.
	minSize, maxSize = 10, 16384
)

// ParamEncrypted is the StorageClass parameter for encryption at rest: true or false. Without it a volume has the cloud's default, and a
// clone that of its source.
const ParamEncrypted = "encrypted"

// Cloud implements cloud.Cloud over the API of Linode.
type Cloud struct {
	*block.Verbs
	cloud.NoCapacity
	cloud.Snapshots

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

// New returns a Cloud. It sends nothing. Its background work ends with ctx or Close.
func New(ctx context.Context, cfg Config) (*Cloud, error) {
	if err := cfg.Complete(slug.MatchString, defaultEndpoint, []budget.Window{{Calls: 1600, Per: time.Minute}}); err != nil {
		return nil, err
	}
	if err := CheckPersist(cfg.Persist); err != nil {
		return nil, err
	}
	cfg = withDefaults(cfg)
	c := &Cloud{
		region: cfg.Region, cluster: cfg.ClusterID, prefix: cfg.NamePrefix, kubernetesTags: cfg.KubernetesTags,
		persist:   persistence{mode: cfg.Persist},
		orphanAge: cfg.OrphanAge, lateness: cfg.Lateness, now: cfg.Now, log: cfg.Log,
		creates: cfg.Governor("create", cfg.Classes.Create), lists: cfg.Governor("list", cfg.Classes.List), others: cfg.Governor("other", cfg.Classes.Other),
	}
	client := &api.Client{
		Endpoint: cfg.Endpoint, Base: cfg.Transport, Token: cfg.Token, UserAgent: cfg.UserAgent,
		Governor: cfg.Governor("", cfg.Limits), Class: c.class, Route: routeOf, Refusal: refusalOf, Kind: kindOf, Metrics: cfg.Metrics.Budget,
		Log: cfg.Log,
	}
	c.sdk = newSDK(api.Transport(client.Do))
	c.ops = ops.New(ctx, cfg.Ops(tracker{c}))
	c.Verbs, c.Snapshots = block.New(c.traits(), requests{c: c}, c.ops, nil), noSnapshots{}
	if cfg.Snapshots {
		c.Snapshots = snapshots{c, block.New(c.traits(), requests{c, true}, c.ops, nil)}
	}
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
	cfg.Persist, cfg.Lateness = cmp.Or(cfg.Persist, PersistAuto), cmp.Or(cfg.Lateness, lateness)
	return cfg
}

// Close stops the background work and waits for it as long as ctx lasts. Calls must have ended.
func (c *Cloud) Close(ctx context.Context) error { return c.ops.Close(ctx) }

// Capabilities returns what the cloud can do. The attach limit depends on a Linode's memory and local disks, so the node reports it.
func (c *Cloud) Capabilities() cloud.Capabilities {
	_, snapshots := c.Snapshots.(snapshots)
	return cloud.Capabilities{
		Attach: true, Expand: true, Modify: true, Clones: true, Health: true, Snapshots: snapshots, SnapshotZones: snapshots,
		Scope:          cloud.Scope(profile.Linode.Scope),
		SizeStep:       cloud.GiB,
		SmallestVolume: minSize * cloud.GiB,
		LargestVolume:  maxSize * cloud.GiB,
		DefaultSize:    20 * cloud.GiB,
		Parameters:     []string{ParamEncrypted}, SnapshotParameters: []string{ParamConsistency},
	}
}

// eventsScope is the scope for the events of the account.
const eventsScope = "events:read_only"

// scopes are those that the API token needs; docs/backends/linode.md explains each.
var scopes = []string{"volumes:read_write", "linodes:read_write", eventsScope}

// Check reads the shortest page of volumes. Each answer of the API lists the scopes of the token, so this one shows all that are missing.
// It does not show the rights of the token's user.
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

// missingScopes returns the scopes that the header lacks; none without the header, or if the API does not know the token.
func missingScopes(header string) []string {
	has := strings.FieldsFunc(header, func(r rune) bool { return r == ' ' || r == ',' })
	if len(has) == 0 || slices.Contains(has, "*") || slices.Equal(has, []string{"unknown"}) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool {
		return slices.Contains(has, scope) || slices.Contains(has, strings.Replace(scope, ":read_only", ":read_write", 1))
	})
}

// CheckRegion returns fault.NoZone if the backend's region has no volumes.
func (c *Cloud) CheckRegion(ctx context.Context) error {
	regions, err := c.regions.Get(ctx, struct{}{})
	if err == nil && !regions[c.region].volumes {
		err = fmt.Errorf("the region %s lacks the capability %q, or does not exist: %w", c.region, hasVolumes, fault.NoZone)
	}
	return err
}
