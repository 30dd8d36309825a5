// Package linode is an emulated Linode (Akamai) account: the real API for block storage volumes, with its
// half-states, limits, refusals and delays, over HTTP on the loopback address or in memory, together with
// the metadata service of its Linodes. A test starts it with Start, a person with
// `go run ./test/emulator --cloud linode`.
package linode

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/contract"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/history"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/rest"
)

type (
	effect  = faults.Effect
	request = rest.Request
	answer  = rest.Answer
)

// Fault is something that goes wrong; see package faults. Its ID is the error's field; the ID NoErrors
// makes an error answer without any error in it.
type Fault = faults.Fault

// Cloud is an emulated account.
type Cloud struct {
	// URL of the API without its version and without a slash at its end: clients add "/v4".
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
	jobs      map[int]*job
	timers    map[*time.Timer]bool
	held      map[int]int
	record    record
	check     *contract.Checker
	unchecked string
	disks     store
}

// New makes an account that serves nothing yet but Client.
func New(opts Options) (*Cloud, error) {
	opts.Token, opts.Region = cmp.Or(opts.Token, DefaultToken), cmp.Or(opts.Region, DefaultRegion)
	if opts.Regions == nil {
		opts.Regions = usualRegions()
	}
	c := &Cloud{
		URL: "http://linode.invalid", Token: opts.Token, opts: opts, clock: clock.New(opts.Speed), now: newState(),
		rules: opts.Rules, lasts: opts.Durations, ids: map[string]int{}, jobs: map[int]*job{},
		timers: map[*time.Timer]bool{}, held: map[int]int{},
	}
	c.record.reset()
	if err := c.openStore(opts.DataDir); err != nil {
		return nil, err
	}
	if err := c.openContract(); err != nil {
		return nil, err
	}
	c.server = rest.New(rest.Config{
		Clock: c.clock, Token: opts.Token, Seed: opts.Seed, Problem: problem, Limited: c.limited, Class: class,
		RequestID: func() string { return strconv.Itoa(c.next("request")) }, Decide: c.decide, Check: c.checkExchange,
	})
	c.server.SetLimits(opts.Limits...)
	c.routes()
	for range opts.Linodes {
		c.AddLinode(Linode{})
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
	mux.Handle("/linodes/", http.NotFoundHandler())
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

func (c *Cloud) routes() {
	for _, route := range []struct {
		method, path string
		handler      func(*request) answer
	}{
		{http.MethodPost, "/volumes", c.createVolume},
		{http.MethodGet, "/volumes", c.listVolumes},
		{http.MethodGet, "/volumes/{volumeId}", c.getVolume},
		{http.MethodPut, "/volumes/{volumeId}", c.updateVolume},
		{http.MethodDelete, "/volumes/{volumeId}", c.deleteVolume},
		{http.MethodPost, "/volumes/{volumeId}/attach", c.attachVolume},
		{http.MethodPost, "/volumes/{volumeId}/detach", c.detachVolume},
		{http.MethodPost, "/volumes/{volumeId}/resize", c.resizeVolume},
		{http.MethodPost, "/volumes/{volumeId}/clone", c.cloneVolume},
		{http.MethodGet, "/linode/instances", c.listLinodes},
		{http.MethodGet, "/linode/instances/{linodeId}", c.getLinode},
		{http.MethodGet, "/linode/instances/{linodeId}/disks", c.listDisks},
		{http.MethodGet, "/linode/instances/{linodeId}/configs", c.listConfigs},
		{http.MethodGet, "/linode/instances/{linodeId}/volumes", c.listLinodeVolumes},
		{http.MethodGet, "/linode/types", c.listTypes},
		{http.MethodGet, "/linode/types/{typeId}", c.getType},
		{http.MethodGet, "/regions", c.listRegions},
		{http.MethodGet, "/regions/{regionId}", c.getRegion},
	} {
		c.server.Handle(route.method, prefix+route.path, func(r *request) answer {
			c.mu.Lock()
			defer c.mu.Unlock()
			if version := r.PathValue("apiVersion"); version != "v4" && version != "v4beta" {
				return c.refuse(notFound)
			}
			return route.handler(r)
		})
	}
}

// prefix of the routes, as the official description writes it.
const prefix = "/{apiVersion}"

// next returns the number of the next thing of a kind, from 1.
func (c *Cloud) next(kind string) int {
	c.idMu.Lock()
	defer c.idMu.Unlock()
	c.ids[kind]++
	return c.ids[kind]
}

// lasting returns how long the next operation of a kind on a volume takes.
func (c *Cloud) lasting(kind, label string, usual clock.Span, e effect) time.Duration {
	if e.Takes != (clock.Span{}) {
		usual = e.Takes
	}
	return usual.Pick(clock.Roll(c.opts.Seed, kind, label, c.next(kind+" of "+label)))
}
