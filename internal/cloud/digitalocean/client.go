// Package digitalocean keeps volumes in DigitalOcean: block storage volumes, which are bound to a
// region and attached to droplets of that region.
//
// The cloud's facts and requests are in requests.go; package block has attach, detach, growth, deletion and find, and package ops runs the
// changes.
package digitalocean

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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

// Config configures a Cloud.
type Config struct {
	block.Config

	// Transport sends the requests. It is required.
	Transport http.RoundTripper
}

const (
	defaultEndpoint = "https://api.digitalocean.com"
	// perPage is the maximum size of a page.
	perPage = 200
	// maxSize is the maximum size of a volume in GiB.
	maxSize = 16384
)

// defaultLimits are the cloud's documented limits of one token. Only the hour's is in its headers, and that of a minute
// is documented as 5 % of it.
func defaultLimits() []budget.Window {
	return []budget.Window{{Calls: 250, Per: time.Minute, Fraction: .05}, {Calls: 5000, Per: time.Hour, FromHeaders: true}}
}

// Cloud implements cloud.Cloud over the API of DigitalOcean.
type Cloud struct {
	*block.Verbs
	cloud.NoCapacity

	sdk     *godo.Client
	ops     *ops.Runner
	region  string
	cluster string
	prefix  string
	log     *zap.Logger

	regions *ops.Reads[struct{}, map[string]bool]
	// names caches the names of volumes, which never change. many: the account has more volumes than fit on a page.
	names   block.Cache[cloud.VolumeID, string]
	many    atomic.Bool
	clones  *block.Through[snapshot]
	tagless sync.Once // a warning
	rights  rights
}

var _ cloud.Cloud = (*Cloud)(nil)

// New returns a Cloud. It sends nothing. Its background work ends with ctx or Close.
func New(ctx context.Context, cfg Config) (*Cloud, error) {
	if err := cfg.Complete(slug.MatchString, defaultEndpoint, defaultLimits()); err != nil {
		return nil, err
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
	c.ops = ops.New(ctx, cfg.Ops(tracker{c}))
	c.Verbs = block.New(traits, requests{c}, c.ops, c.volumePage)
	c.regions = ops.NewReads(c.ops, c.readRegions, nil)
	c.clones = c.throughSnapshots(block.NewLeftovers(c.ops, cfg.OrphanAge, cfg.Log))
	c.clones.Every(cfg.SweepEvery, c.Sweep)
	return c, nil
}

// Close stops the background work and waits for it as long as ctx lasts. Calls must have ended.
func (c *Cloud) Close(ctx context.Context) error { return c.ops.Close(ctx) }

// Capabilities returns what the cloud can do.
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

// scopes are the required scopes of a token by route. docs/backends has the same table.
var scopes = map[string]string{
	"GET /v2/volumes":                   "block_storage:read",
	"GET /v2/volumes/{id}":              "block_storage:read",
	"POST /v2/volumes":                  "block_storage:create",
	"DELETE /v2/volumes/{id}":           "block_storage:delete",
	"GET /v2/volumes/{id}/actions":      "block_storage_action:read",
	"POST /v2/volumes/{id}/actions":     "block_storage_action:create",
	"GET /v2/volumes/{id}/snapshots":    "block_storage_snapshot:read",
	"GET /v2/volumes/snapshots/{id}":    "block_storage_snapshot:read",
	"POST /v2/volumes/{id}/snapshots":   "block_storage_snapshot:create",
	"DELETE /v2/volumes/snapshots/{id}": "block_storage_snapshot:delete",
	"GET /v2/snapshots":                 "snapshot:read",
	"GET /v2/actions":                   "actions:read",
	"GET /v2/actions/{id}":              "actions:read",
	"GET /v2/droplets":                  "droplet:read",
	"GET /v2/droplets/{id}":             "droplet:read",
	"GET /v2/regions":                   "regions:read",
	// For ModifyVolume, which is optional.
	"POST /v2/tags":                  "tag:create",
	"POST /v2/tags/{id}/resources":   "tag:create and block_storage:update",
	"DELETE /v2/tags/{id}/resources": "tag:delete and block_storage:update",
}

func scopeOf(r api.Request) string { return scopes[r.Method+" "+routeOf(r.Path)] }

// client sends the requests. The error of one that the token may not make names the missing scope.
type client struct{ *api.Client }

// Do sends a request.
func (c client) Do(ctx context.Context, r api.Request, into any) error {
	err := c.Client.Do(ctx, r, into)
	if !lacksScope(err) {
		return err
	}
	return fmt.Errorf("%w (it needs the scope %s)", err, scopeOf(r))
}

// nowhere is an id that no volume has.
const nowhere = "00000000-0000-0000-0000-000000000000"

// checked are the paths that Check reads: one for each scope that a read can prove. For the paths of a volume that does not exist, 404
// proves the scope.
var checked = []string{
	"/v2/volumes", "/v2/actions", "/v2/snapshots", "/v2/droplets", "/v2/regions",
	"/v2/volumes/" + nowhere + "/actions", "/v2/volumes/" + nowhere + "/snapshots",
}

// provenFor is how long a scope counts as proved after a read. The cloud allows 5,000 requests an hour, and Check is called every minute.
const provenFor = time.Hour

// rights has when each scope was proved, by the path of the read.
type rights struct {
	mu     sync.Mutex
	proved map[string]time.Time
}

// Check reads a volume, which proves that the API can be reached. For each other scope that was not proved lately it reads one entry, and it
// names the scopes that the token lacks. A read with another error proves nothing and is repeated by the next Check. No read can prove
// the scopes of changes.
func (c *Cloud) Check(ctx context.Context) error {
	c.rights.mu.Lock()
	defer c.rights.mu.Unlock()
	var missing []string
	for i, path := range checked {
		if i > 0 && time.Since(c.rights.proved[path]) < provenFor {
			continue
		}
		err := c.check(ctx, path)
		switch a := api.AnswerOf(err); {
		case err == nil:
			c.rights.proved[path] = time.Now()
		case a != nil && a.Status == http.StatusForbidden:
			missing = append(missing, scopes["GET "+routeOf(path)])
		case i == 0:
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the token lacks the scopes %s: %w", strings.Join(missing, ", "), fault.Denied)
	}
	return nil
}

func (c *Cloud) check(ctx context.Context, path string) error {
	key := path[strings.LastIndex(path, "/")+1:]
	err := c.generic(ctx, api.Call{Doing: "check the token", Priority: budget.List, Has: []string{key}}, http.MethodGet, path+"?page=1&per_page=1", nil)
	if api.NotFound(err) && strings.Contains(path, nowhere) {
		return nil
	}
	return err
}

// CheckRegion returns fault.NoZone if the backend's region has no volumes.
func (c *Cloud) CheckRegion(ctx context.Context) error {
	regions, err := c.regions.Get(ctx, struct{}{})
	if err == nil && !regions[c.region] {
		err = fmt.Errorf("the region %s has no volumes, or does not exist: %w", c.region, fault.NoZone)
	}
	return err
}
