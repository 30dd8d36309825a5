// Package linode is an emulated Linode (Akamai) account: the real API for block storage volumes, with its
// half-states, limits, refusals and delays, over HTTP on the loopback address or in memory, together with
// the metadata service of its Linodes. A test starts it with Start, a person with
// `go run ./test/kit/emulator --cloud linode`.
package linode

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
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
	if c.disks = opts.Disks; c.disks == nil {
		if c.disks, err = disks.OpenStore(opts.DataDir); err != nil {
			return nil, err
		}
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
		{http.MethodPut, "/volumes/{volumeId}", c.updateVolume, right{"update_volume", []string{volumesWrite}}},
		{http.MethodDelete, "/volumes/{volumeId}", c.deleteVolume, right{"delete_volume", []string{volumesWrite}}},
		{http.MethodPost, "/volumes/{volumeId}/attach", c.attachVolume, right{"attach_volume", []string{volumesWrite, linodesWrite}}},
		{http.MethodPost, "/volumes/{volumeId}/detach", c.detachVolume, right{"detach_volume", []string{volumesWrite, linodesWrite}}},
		{http.MethodPost, "/volumes/{volumeId}/resize", c.resizeVolume, right{"resize_volume", []string{volumesWrite}}},
		{http.MethodPost, "/volumes/{volumeId}/clone", c.cloneVolume, right{"clone_volume", []string{volumesWrite}}},
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
