// Package digitalocean is an emulated DigitalOcean account: the real API for volumes, their actions and
// snapshots, with its limits, refusals and delays, over HTTP on the loopback address or in memory,
// together with the metadata service of its droplets. A test starts it with Start, a person with
// `go run ./test/emulator`.
package digitalocean

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/contract"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/history"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/rest"
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
	// URL of the API, without a path and without a slash at its end.
	URL string
	// Token that requests must bear.
	Token string

	opts      Options
	clock     *clock.Clock
	server    *rest.Server
	listeners rest.Listeners

	idMu      sync.Mutex // guards ids alone: an id is needed before and while mu is held
	ids       map[string]int
	mu        sync.Mutex
	closed    bool
	now       state
	past      history.Log[state]
	rules     Rules
	lasts     Durations
	numbers   int
	running   map[int]*runningAction
	timers    map[*time.Timer]bool
	held      map[string]int
	record    record
	check     *contract.Checker
	unchecked string
	disks     store
}

// New makes an account that serves nothing yet but Client.
func New(opts Options) (*Cloud, error) {
	if opts.Token == "" {
		opts.Token = DefaultToken
	}
	if opts.Region == "" {
		opts.Region = DefaultRegion
	}
	if opts.Regions == nil {
		opts.Regions = usualRegions()
	}
	c := &Cloud{
		URL: "http://digitalocean.invalid", Token: opts.Token, opts: opts, clock: clock.New(opts.Speed), now: newState(),
		rules: opts.Rules, lasts: opts.Durations, ids: map[string]int{}, running: map[int]*runningAction{},
		timers: map[*time.Timer]bool{}, held: map[string]int{},
	}
	c.record.reset()
	if err := c.openStore(opts.DataDir); err != nil {
		return nil, err
	}
	if err := c.openContract(); err != nil {
		return nil, err
	}
	c.server = rest.New(rest.Config{
		Clock: c.clock, Token: opts.Token, Seed: opts.Seed, Problem: refuse, Limited: limited,
		RequestID: func() string { return c.newUUID("request", "") }, Decide: c.decide, Check: c.checkExchange,
	})
	c.server.SetLimits(opts.Limits...)
	c.routes()
	for range opts.Droplets {
		c.AddDroplet(Droplet{})
	}
	return c, nil
}

// Listen serves the API, the metadata services and the control endpoint on a loopback address.
func (c *Cloud) Listen(ctx context.Context, address string) error {
	url, err := c.listeners.Serve(ctx, address, c.Handler())
	if err == nil {
		c.URL = url
	}
	return err
}

// ListenTLS serves the same at another address, over TLS. It returns the URL there and the PEM text of
// the certificate that a client must trust.
func (c *Cloud) ListenTLS(ctx context.Context, address string, hosts ...string) (url string, authority []byte, err error) {
	return c.listeners.ServeTLS(ctx, address, c.Handler(), hosts...)
}

// Handler returns everything that the account serves.
func (c *Cloud) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", c.server)
	mux.Handle("/droplets/", http.NotFoundHandler())
	mux.Handle("/_emulator/", http.NotFoundHandler())
	c.metadataRoutes(mux)
	c.controlRoutes(mux)
	return mux
}

// Client returns an HTTP client that reaches the API in memory. It adds no token.
func (c *Cloud) Client() *http.Client { return &http.Client{Transport: c.server} }

// Testing is what Start needs of a *testing.T.
type Testing interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Name() string
	Logf(format string, args ...any)
}

// Start starts an account that lives as long as the test. The test fails if an exchange breaks the
// official description (see OPENAPI_DIR) or if something is left that cannot be cleaned up.
func Start(t Testing, opts Options) *Cloud {
	t.Helper()
	c, err := New(opts)
	if err != nil {
		t.Fatalf("start the emulated account: %v", err)
	}
	if !opts.InMemory {
		if err := c.Listen(t.Context(), "127.0.0.1:0"); err != nil {
			t.Fatalf("start the emulated account: %v", err)
		}
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("clean up the emulated account: %v", err)
		}
		c.reportContract(t)
	})
	return c
}

// Close ends what is running, detaches what this machine has attached and removes the data.
func (c *Cloud) Close() error {
	err := c.listeners.Close()
	c.server.Close()
	c.listeners.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for timer := range c.timers {
		timer.Stop()
	}
	return errors.Join(err, c.disks.Close())
}

// after calls f with the lock held when the emulated d has passed, unless the account is closed first.
func (c *Cloud) after(d time.Duration, f func()) {
	var timer *time.Timer
	timer = c.clock.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.timers, timer)
		if !c.closed {
			f()
		}
	})
	c.timers[timer] = true
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
		handler         func(*request) answer
	}{
		{http.MethodPost, "/v2/volumes", c.createVolume},
		{http.MethodGet, "/v2/volumes", c.listVolumes},
		{http.MethodDelete, "/v2/volumes", c.deleteVolumeByName},
		{http.MethodGet, "/v2/volumes/{volume_id}", c.getVolume},
		{http.MethodDelete, "/v2/volumes/{volume_id}", c.deleteVolume},
		{http.MethodPost, "/v2/volumes/{volume_id}/actions", c.startAction},
		{http.MethodGet, "/v2/volumes/{volume_id}/actions", c.listVolumeActions},
		{http.MethodGet, "/v2/volumes/{volume_id}/actions/{action_id}", c.getVolumeAction},
		{http.MethodPost, "/v2/volumes/{volume_id}/snapshots", c.createSnapshot},
		{http.MethodGet, "/v2/volumes/{volume_id}/snapshots", c.listVolumeSnapshots},
		{http.MethodGet, "/v2/volumes/snapshots/{snapshot_id}", c.getSnapshot},
		{http.MethodDelete, "/v2/volumes/snapshots/{snapshot_id}", c.deleteSnapshot},
		{http.MethodGet, "/v2/snapshots", c.listSnapshots},
		{http.MethodGet, "/v2/snapshots/{snapshot_id}", c.getSnapshot},
		{http.MethodDelete, "/v2/snapshots/{snapshot_id}", c.deleteSnapshot},
		{http.MethodGet, "/v2/actions", c.listActions},
		{http.MethodGet, "/v2/actions/{action_id}", c.getAction},
		{http.MethodGet, "/v2/droplets", c.listDroplets},
		{http.MethodGet, "/v2/droplets/{droplet_id}", c.getDroplet},
		{http.MethodGet, "/v2/regions", c.listRegions},
		{http.MethodGet, "/v2/account", c.getAccount},
		{http.MethodGet, "/v2/tags", c.listTags},
		{http.MethodPost, "/v2/tags", c.createTag},
		{http.MethodGet, "/v2/tags/{tag_id}", c.getTag},
		{http.MethodDelete, "/v2/tags/{tag_id}", c.deleteTag},
		{http.MethodPost, "/v2/tags/{tag_id}/resources", c.tagResources},
		{http.MethodDelete, "/v2/tags/{tag_id}/resources", c.untagResources},
	} {
		c.server.Handle(route.method, route.pattern, c.locked(route.handler))
	}
}

// next returns the number of the next thing of a kind, from 1.
func (c *Cloud) next(kind string) int {
	c.idMu.Lock()
	defer c.idMu.Unlock()
	c.ids[kind]++
	return c.ids[kind]
}

// newUUID returns a UUID that depends on the seed, on the name of what it is for and on the number of
// those of this name before it: not on what else the account does meanwhile.
func (c *Cloud) newUUID(kind, name string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %d", c.opts.Seed, kind, name, c.next(kind+" "+name)))
	sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// lasting returns how long the next operation of a kind on a volume takes.
func (c *Cloud) lasting(kind, name string, usual clock.Span, e effect) time.Duration {
	if e.Takes != (clock.Span{}) {
		usual = e.Takes
	}
	return usual.Pick(clock.Roll(c.opts.Seed, kind, name, c.next(kind+" of "+name)))
}

func hasFeature(features []string, name string) bool { return slices.Contains(features, name) }
