package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/rest"
	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

var digitalOceanTarget = target{
	name:    "digitalocean",
	emulate: emulateDigitalOcean,
	limits:  []budget.Window{{Calls: 250, Per: time.Minute}, {Calls: 5000, Per: time.Hour, Told: true}},
	flood:   600,
	bars:    &bars6{each: 1.5, foreign: 2, alone: 12},
	vendor: given{
		driver: "csi-digitalocean",
		quick:  "7 + 4", slow: "15 + 4", limited: "32, two thirds answered 429",
		attach: 6.7, collisions: "on 4 machines its p99 is 17 s of collisions",
	},
}

// digitalOcean is an account whose droplets take one action at a time.
type digitalOcean struct{ programs.DigitalOcean }

// Left names what there is of volumes, without those of others.
func (d digitalOcean) Left() []string {
	return slices.DeleteFunc(d.DigitalOcean.Left(), func(what string) bool { return strings.Contains(what, "foreign-") })
}

func emulateDigitalOcean(ctx context.Context, s setting) (account, error) {
	opts := emulator.Options{InMemory: s.inMemory, Droplets: s.machines, Durations: emulator.Actions(clock.Span{Least: s.takes, Spread: s.more})}
	opts.Durations.CreateVolume = clock.Fixed(s.answers)
	for _, l := range s.limits {
		opts.Limits = append(opts.Limits, rest.Limit{Requests: l.Calls, Window: l.Per})
	}
	a, err := emulator.New(opts)
	if err == nil && !s.inMemory {
		err = a.Listen(ctx, "127.0.0.1:0")
	}
	for i := 0; i < s.foreign && err == nil; i++ {
		_, err = a.AddVolume(emulator.Volume{Name: fmt.Sprint("foreign-", i), SizeGiB: 1})
	}
	if s.gets > 0 && err == nil {
		a.Arm(emulator.Fault{Method: http.MethodGet, Effect: faults.Effect{Delay: clock.Fixed(s.gets)}})
	}
	return digitalOcean{programs.DigitalOcean{Account: a}}, err
}

// Machines are the droplets.
func (d digitalOcean) Machines() []string { return texts(d.Account.Droplets()) }

// Counted are the requests that reached the API.
func (d digitalOcean) Counted() counted { return countedOf(d.Account.Stats().Stats) }

// Add makes a volume that belongs to nobody.
func (d digitalOcean) Add(name string) (string, error) {
	return d.Account.AddVolume(emulator.Volume{Name: name, SizeGiB: 1})
}

// Usable reports whether a droplet has a volume.
func (d digitalOcean) Usable(volume, machine string) bool {
	v, _ := d.Account.Volume(volume)
	return strconv.Itoa(v.DropletID) == machine
}

// Changes are the operations that the account accepted.
func (d digitalOcean) Changes() []change {
	calls := map[string]string{
		"create_volume": callCreate, "attach_volume": callPublish, "detach_volume": callUnpublish, "delete_volume": callDelete,
	}
	var all []change
	for _, op := range d.Account.Operations() {
		all = append(all, change{what: calls[op.Kind], volume: op.VolumeName, accepted: op.Accepted, finished: op.Finished})
	}
	return all
}

// Reset forgets what was counted.
func (d digitalOcean) Reset() { d.Account.ResetStats() }

// Open makes the backend; a request reaches the account through memory.
func (d digitalOcean) Open(ctx context.Context, limits []budget.Window, reg prometheus.Registerer) (cloud.Cloud, func(context.Context) error, error) {
	waits, err := budget.NewMetrics(reg)
	if err != nil {
		return nil, nil, err
	}
	c, err := digitalocean.New(ctx, digitalocean.Config{
		Token:    func() (string, error) { return d.Account.Token, nil },
		Endpoint: d.Account.URL, Transport: d.Account.Client().Transport, Region: emulator.DefaultRegion, ClusterID: "bench",
		Limits: limits, Metrics: digitalocean.Metrics{Budget: waits}, SweepEvery: -1,
	})
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}
