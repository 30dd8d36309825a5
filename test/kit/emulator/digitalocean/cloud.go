// Package digitalocean is an emulated DigitalOcean account: the real API for volumes, their actions and
// snapshots, with its limits, refusals and delays, over HTTP on the loopback address or in memory,
// together with the metadata service of its droplets. A test starts it with Start, a person with
// `go run ./test/kit/emulator`.
package digitalocean

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/contract"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/history"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

const (
	minute = time.Minute
	hour   = time.Hour
)

type (
	effect  = faults.Effect
	request = rest.Request
	answer  = rest.Answer
)

// Fault is something that goes wrong; see package faults.
type Fault = faults.Fault

// Cloud is an emulated account.
type Cloud struct {
	*account.Web
	account.Holds[string]
	account.Settings[Durations, Rules]

	opts   Options
	clock  *clock.Clock
	dice   account.Dice
	record account.Record[int, Operation, Violation]

	mu      sync.Mutex
	later   account.Timers
	now     state
	past    history.Log[state]
	rules   Rules
	lasts   Durations
	numbers int
	running map[int]*runningAction
	disks   disks.Store
}

// New makes an account that serves nothing yet but Client.
func New(opts Options) (*Cloud, error) {
	opts.Token, opts.Region = cmp.Or(opts.Token, DefaultToken), cmp.Or(opts.Region, DefaultRegion)
	if opts.Regions == nil {
		opts.Regions = usualRegions()
	}
	c := &Cloud{
		opts: opts, clock: clock.New(opts.Speed), dice: account.Dice{Seed: opts.Seed}, now: newState(),
		rules: opts.Rules, lasts: opts.Durations, running: map[int]*runningAction{},
	}
	c.later = account.Timers{Clock: c.clock, Lock: &c.mu}
	var err error
	if c.disks, err = disks.OpenStore(opts.Disks, opts.DataDir); err != nil {
		return nil, err
	}
	c.Web, err = account.NewWeb(account.WebConfig{
		Cloud: "digitalocean", Machines: "droplets", Metadata: c.metadataRoutes, Control: c.control,
		API: rest.Config{
			Clock: c.clock, Token: opts.Token, Seed: opts.Seed, Problem: refuse, Limited: limited,
			RequestID: func() string { return c.dice.UUID("request", "") }, Decide: c.decide,
		},
		Limits: opts.Limits, Description: description,
	})
	if err != nil {
		return nil, err
	}
	c.Settings = account.NewSettings(&c.mu, &c.lasts, &c.rules, c.Server)
	c.routes()
	for range opts.Droplets {
		c.AddDroplet(Droplet{})
	}
	return c, nil
}

// description says what is known about the official description of the API.
var description = contract.Config{
	File: "digitalocean.json",
	Exceptions: []contract.Exception{
		{
			Method: "GET", Route: "/v2/snapshots", Contains: `unknown query parameter "region"`,
			Why: "the official SDK sends it (ListSnapshotsOptions.Region)",
		},
	},
	Borrowed: map[string]string{
		"GET /v2/actions":                    "GET /v2/volumes/{volume_id}/actions",
		"DELETE /v2/tags/{tag_id}/resources": "POST /v2/tags/{tag_id}/resources",
	},
}

// Testing is what Start needs of a *testing.T.
type Testing = account.Testing

// Start starts an account that lives as long as the test. The test fails if an exchange breaks the
// official description (see OPENAPI_DIR) or if something is left that cannot be cleaned up.
func Start(t Testing, opts Options) *Cloud {
	t.Helper()
	c, err := New(opts)
	account.Live(t, c, err, opts.InMemory)
	return c
}

// Close ends what is running, detaches what this machine has attached and removes the data.
func (c *Cloud) Close() error {
	err := c.Web.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.later.Stop()
	return errors.Join(err, c.disks.Close())
}

// locked makes a handler of a function that needs the state.
func (c *Cloud) locked(f func(*request) answer) rest.Handler {
	return func(r *request) answer {
		c.mu.Lock()
		defer c.mu.Unlock()
		return f(r)
	}
}

func (c *Cloud) routes() {
	for _, route := range []struct {
		method, pattern string
		scopes          string // all that the description demands, separated by spaces
		handler         func(*request) answer
	}{
		{http.MethodPost, "/v2/volumes", "block_storage:create", c.createVolume},
		{http.MethodGet, "/v2/volumes", "block_storage:read", c.listVolumes},
		{http.MethodGet, "/v2/volumes/{volume_id}", "block_storage:read", c.getVolume},
		{http.MethodDelete, "/v2/volumes/{volume_id}", "block_storage:delete", c.deleteVolume},
		{http.MethodPost, "/v2/volumes/{volume_id}/actions", "block_storage_action:create", c.startAction},
		{http.MethodGet, "/v2/volumes/{volume_id}/actions", "block_storage_action:read", c.listVolumeActions},
		{http.MethodPost, "/v2/volumes/{volume_id}/snapshots", "block_storage_snapshot:create", c.createSnapshot},
		{http.MethodGet, "/v2/volumes/{volume_id}/snapshots", "block_storage_snapshot:read", c.listVolumeSnapshots},
		{http.MethodGet, "/v2/volumes/snapshots/{snapshot_id}", "block_storage_snapshot:read", c.getSnapshot},
		{http.MethodDelete, "/v2/volumes/snapshots/{snapshot_id}", "block_storage_snapshot:delete", c.deleteSnapshot},
		{http.MethodGet, "/v2/snapshots", "snapshot:read", c.listSnapshots},
		{http.MethodGet, "/v2/actions", "actions:read", c.listActions},
		{http.MethodGet, "/v2/actions/{action_id}", "actions:read", c.getAction},
		{http.MethodGet, "/v2/droplets", "droplet:read", c.listDroplets},
		{http.MethodGet, "/v2/droplets/{droplet_id}", "droplet:read", c.getDroplet},
		{http.MethodGet, "/v2/regions", "regions:read", c.listRegions},
		{http.MethodGet, "/v2/account", "account:read", c.getAccount},
		{http.MethodPost, "/v2/tags", "tag:create", c.createTag},
		{http.MethodPost, "/v2/tags/{tag_id}/resources", "tag:create", c.tagResources},
		{http.MethodDelete, "/v2/tags/{tag_id}/resources", "tag:delete", c.untagResources},
	} {
		c.Server.Handle(route.method, route.pattern, c.locked(c.scoped(route.scopes, route.handler)))
	}
}

func (c *Cloud) listRegions(r *request) answer {
	return page(r, "regions", slices.Sorted(maps.Keys(c.opts.Regions)), c.region)
}

// getAccount shows the account as recordings of 2022 have it. Its volume_limit is 0 where the rules have none, as the vendor's driver
// reads it.
func (c *Cloud) getAccount(r *request) answer {
	const uuid = "00000000-0000-4000-8000-00000000e0e0"
	return reply(http.StatusOK, map[string]any{"account": map[string]any{
		"droplet_limit": 25, "floating_ip_limit": 3, "reserved_ip_limit": 3, "volume_limit": c.rules.VolumeLimit,
		"email": "owner@example.com", "uuid": uuid, "email_verified": true, "status": "active", "status_message": "",
		"team": map[string]any{"uuid": uuid, "name": "My Team"},
	}}, r.ID)
}
