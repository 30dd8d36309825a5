package main

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/rest"
	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

var linodeTarget = target{
	name:    "linode",
	emulate: emulateLinode,
	limits:  []budget.Window{{Calls: 1600, Per: time.Minute}},
	flood:   240,
	vendor: given{
		driver: "linode-blockstorage-csi-driver",
		quick:  "10 + 4", slow: "11 + 5", limited: "not measured",
		attach: 20, collisions: "its publish returns before the device is there",
	},
}

// linodes is an account whose Linodes take one change at a time, and have room for many volumes.
type linodes struct{ programs.Linode }

// emulateLinode starts an account that always has the limits of single kinds of requests: the lists and the
// creates of a minute.
func emulateLinode(ctx context.Context, s setting) (account, error) {
	opts := emulator.Options{
		InMemory: s.inMemory, Durations: emulator.Each(clock.Span{Least: s.takes, Spread: s.more}),
		Rules:  emulator.Rules{OneChangePerLinode: true},
		Limits: slices.DeleteFunc(emulator.RealLimits(), func(l rest.Limit) bool { return l.Of == "" }),
	}
	opts.Durations.Create = clock.Fixed(s.made)
	for _, l := range s.limits {
		opts.Limits = append(opts.Limits, rest.Limit{Requests: l.Calls, Window: l.Per})
	}
	a, err := emulator.New(opts)
	if err != nil {
		return nil, err
	}
	const large = 96 << 10
	for range s.machines {
		a.AddLinode(emulator.Linode{MemoryMB: large})
	}
	if !s.inMemory {
		err = a.Listen(ctx, "127.0.0.1:0")
	}
	return linodes{programs.Linode{Account: a}}, err
}

// Machines are the Linodes.
func (l linodes) Machines() []string { return texts(l.Account.Linodes()) }

// Counted are the requests that reached the API.
func (l linodes) Counted() counted { return countedOf(l.Account.Stats().Stats) }

// Add makes a volume that belongs to nobody.
func (l linodes) Add(label string) (string, error) {
	id, err := l.Account.AddVolume(emulator.Volume{Label: label})
	return strconv.Itoa(id), err
}

// Usable reports whether a Linode has a volume's device; its id in the volume's record does not mean that.
func (l linodes) Usable(volume, machine string) bool {
	id, _ := strconv.Atoi(volume) // 0 is no volume
	v, _ := l.Account.Volume(id)
	return strconv.Itoa(v.Linode) == machine && v.IOReady
}

// Changes are the operations that the account accepted.
func (l linodes) Changes() []change {
	calls := map[string]string{
		"volume_create": callCreate, "volume_attach": callPublish, "volume_detach": callUnpublish, "volume_delete": callDelete,
	}
	var all []change
	for _, op := range l.Account.Operations() {
		all = append(all, change{what: calls[op.Kind], volume: op.Label, accepted: op.Accepted, finished: op.Finished})
	}
	return all
}

// Reset forgets what was counted.
func (l linodes) Reset() { l.Account.ResetStats() }

// Open makes the backend; a request reaches the account through memory.
func (l linodes) Open(ctx context.Context, limits []budget.Window, reg prometheus.Registerer) (cloud.Cloud, func(context.Context) error, error) {
	waits, err := budget.NewMetrics(reg)
	if err != nil {
		return nil, nil, err
	}
	c, err := linode.New(ctx, linode.Config{
		Token:    func() (string, error) { return l.Account.Token, nil },
		Endpoint: l.Account.URL, Transport: l.Account.Client().Transport, Region: emulator.DefaultRegion, ClusterID: "bench",
		Limits: limits, Metrics: remote.Metrics{Budget: waits},
	})
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}
