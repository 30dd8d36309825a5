// Package linode is an emulated Linode (Akamai) account: the real API for block storage volumes, with its
// half-states, limits, refusals and delays, over HTTP on the loopback address or in memory, together with
// the metadata service of its Linodes. A test starts it with Start, a person with
// `go run ./test/kit/emulator --cloud linode`.
package linode

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/contract"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/history"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
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
	*account.Web
	account.Holds[int]
	account.Settings[Durations, Rules]

	opts   Options
	clock  *clock.Clock
	dice   account.Dice
	record account.Record[int, Operation, Violation]

	mu    sync.Mutex
	later account.Timers
	now   state
	past  history.Log[state]
	rules Rules
	lasts Durations
	jobs  map[int]*job
	// events are the operations as the API tells of them, by their numbers; no reset forgets them.
	events map[int]event
	disks  disks.Store
	// rights are those that the routes need, by method and route.
	rights map[string]right
}

// New makes an account that serves nothing yet but Client.
func New(opts Options) (*Cloud, error) {
	opts.Token, opts.Region = cmp.Or(opts.Token, DefaultToken), cmp.Or(opts.Region, DefaultRegion)
	if opts.Regions == nil {
		opts.Regions = usualRegions()
	}
	c := &Cloud{
		opts: opts, clock: clock.New(opts.Speed), dice: account.Dice{Seed: opts.Seed}, now: newState(),
		rules: opts.Rules, lasts: opts.Durations, jobs: map[int]*job{}, events: map[int]event{}, rights: map[string]right{},
	}
	c.later = account.Timers{Clock: c.clock, Lock: &c.mu}
	var err error
	if c.disks, err = disks.OpenStore(opts.Disks, opts.DataDir); err != nil {
		return nil, err
	}
	c.Web, err = account.NewWeb(account.WebConfig{
		Cloud: "linode", Machines: "linodes", Metadata: c.metadataRoutes, Control: c.control,
		API: rest.Config{
			Clock: c.clock, Token: opts.Token, Seed: opts.Seed, Problem: problem, Limited: c.limited, Headers: c.showScopes, Class: class,
			RequestID: func() string { return strconv.Itoa(c.dice.Next("request")) }, Decide: c.decide,
		},
		Limits: opts.Limits, Description: description,
	})
	if err != nil {
		return nil, err
	}
	c.Settings = account.NewSettings(&c.mu, &c.lasts, &c.rules, c.Server)
	c.routes()
	for range opts.Linodes {
		c.AddLinode(Linode{})
	}
	for n := range opts.Foreign {
		if _, err := c.AddVolume(Volume{Label: fmt.Sprint("foreign-", n), SizeGiB: smallestVolume}); err != nil {
			return nil, err
		}
	}
	return c, nil
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

func (c *Cloud) routes() {
	for _, route := range []struct {
		method, path string
		handler      func(*request) answer
		right        right
	}{
		{http.MethodPost, "/volumes", c.createVolume, right{"create_volume", []string{volumesWrite}}},
		{http.MethodGet, "/volumes", c.listVolumes, right{"view_volume", []string{volumesRead}}},
		{http.MethodGet, "/volumes/types", c.listTypes, right{}},
		{http.MethodGet, "/volumes/{volumeId}", c.getVolume, right{"view_volume", []string{volumesRead}}},
		{http.MethodPut, "/volumes/{volumeId}", c.with(c.updateVolume), right{"update_volume", []string{volumesWrite}}},
		{http.MethodDelete, "/volumes/{volumeId}", c.with(c.deleteVolume), right{"delete_volume", []string{volumesWrite}}},
		{http.MethodPost, "/volumes/{volumeId}/attach", c.with(c.attachVolume), right{"attach_volume", []string{volumesWrite, linodesWrite}}},
		{http.MethodPost, "/volumes/{volumeId}/detach", c.with(c.detachVolume), right{"detach_volume", []string{volumesWrite, linodesWrite}}},
		{http.MethodPost, "/volumes/{volumeId}/resize", c.with(c.resizeVolume), right{"resize_volume", []string{volumesWrite}}},
		{http.MethodPost, "/volumes/{volumeId}/clone", c.with(c.cloneVolume), right{"clone_volume", []string{volumesWrite}}},
		{http.MethodGet, "/linode/instances/{linodeId}", c.getLinode, right{"view_linode", []string{linodesRead}}},
		{http.MethodGet, "/linode/instances/{linodeId}/disks", c.listDisks, right{"view_linode_disk", []string{linodesRead}}},
		{http.MethodGet, "/linode/instances/{linodeId}/volumes", c.listLinodeVolumes, right{"list_linode_volumes", []string{linodesRead}}},
		{http.MethodGet, "/account/events", c.listEvents, right{"list_events", []string{eventsRead}}},
		{http.MethodGet, "/regions", c.listRegions, right{}},
	} {
		c.Server.Handle(route.method, prefix+route.path, func(r *request) answer {
			c.mu.Lock()
			defer c.mu.Unlock()
			if version := r.PathValue("apiVersion"); version != "v4" && version != beta {
				return c.refuse(notFound)
			}
			if why := c.mayUse(route.right); why != nil {
				return c.refuse(*why)
			}
			return route.handler(r)
		})
		c.rights[route.method+" "+prefix+route.path] = route.right
	}
}

// prefix of the routes, as the official description writes it, and its value for the version that shows locks.
const prefix, beta = "/{apiVersion}", "v4beta"

// description says what is known about the official description of the API.
var description = contract.Config{
	File: "linode.json",
	Exceptions: []contract.Exception{
		{
			Method: "GET", Contains: `parameter "X-Filter" in header has an error: empty value`,
			Why: "the official SDK sends the header also when there is no filter",
		},
		{
			Method: "GET", Route: prefix + "/regions", Contains: `unknown query parameter "page`,
			Why: "the official SDK asks for pages of every list, and how long they may be; the answers are pages",
		},
		{
			Method: "GET", Route: prefix + "/volumes/types", Contains: `unknown query parameter "page`,
			Why: "as for regions: linodego's recording TestVolumeType_List",
		},
		{
			Method: "POST", Route: prefix + "/volumes/{volumeId}/detach", Contains: "request body not allowed",
			Why: "the official SDK sends an empty object, and the real API takes it",
		},
		{
			Method: "POST", Route: prefix + "/volumes", Contains: `property "locks" is unsupported`,
			Why: "the answer of v4beta has it: package recorded, TestVolume_Create",
		},
		{
			Method: "GET", Route: prefix + "/account/events", Contains: `/secondary_entity": Value is not nullable`,
			Why: "an event without a second object has a null there: linodego's recording TestEventPoller_Secondary",
		},
		{
			Contains: `Content-Type has unexpected value: "text/html"`,
			Why:      "a gateway in front of the API answers for it with a page",
		},
		{
			Method: "GET", Contains: `property "site_type" is unsupported`,
			Why: "the description calls it site-type; the real API and the official SDK say site_type",
		},
	},
}

func (c *Cloud) listRegions(r *request) answer {
	return page(c, r, slices.Sorted(maps.Keys(c.opts.Regions)), c.showRegion)
}
