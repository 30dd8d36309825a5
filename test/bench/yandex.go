package main

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

var yandexTarget = target{
	name:       "yandex",
	emulate:    emulateYandex,
	operations: 15,
	flood:      240,
	vendor: given{
		driver: "both Yandex drivers",
		quick:  "13 + 4", slow: "21 + 4", limited: "not measured",
		attach: 6.7, collisions: "they do not count how many operations run",
	},
}

// yandexFolder is a folder whose instances take one operation at a time, and that runs so many at most. They
// are of the generation that has room for many disks.
type yandexFolder struct{ programs.Yandex }

func emulateYandex(ctx context.Context, s setting) (account, error) {
	if len(s.limits) > 0 {
		return nil, errors.New("yandex documents no limits of requests")
	}
	opts := emulator.Options{
		InMemory: s.inMemory, Durations: emulator.Each(clock.Span{Least: s.takes, Spread: s.more}),
		Rules: emulator.Rules{BootDisksElsewhere: true},
	}
	opts.Durations.Create = clock.Fixed(s.made)
	a, err := emulator.New(opts)
	if err != nil {
		return nil, err
	}
	for range s.machines {
		a.AddInstance(emulator.Instance{Generation: emulator.Generation2})
	}
	if !s.inMemory {
		err = a.Listen(ctx, "127.0.0.1:0")
	}
	return yandexFolder{programs.Yandex{Account: a}}, err
}

// Machines are the instances.
func (y yandexFolder) Machines() []string { return y.Account.Instances() }

// Counted are the requests that reached the API.
func (y yandexFolder) Counted() counted {
	stats := y.Account.Stats()
	c := countedOf(stats.Stats)
	c.atOnce = stats.MaxParallel[y.Account.Folder]
	return c
}

// Add makes a disk that belongs to nobody.
func (y yandexFolder) Add(name string) (string, error) {
	return y.Account.AddDisk(emulator.Disk{Name: name, Size: gib})
}

// Usable reports whether an instance has a disk.
func (y yandexFolder) Usable(volume, machine string) bool {
	d, _ := y.Account.Disk(volume)
	return d.Instance == machine
}

// Changes are the operations that the folder accepted.
func (y yandexFolder) Changes() []change {
	calls := map[string]string{"create": callCreate, "attach": callPublish, "detach": callUnpublish, "delete": callDelete}
	var all []change
	for _, op := range y.Account.Operations() {
		all = append(all, change{what: calls[op.Kind], volume: op.DiskName, accepted: op.Accepted, finished: op.Finished})
	}
	return all
}

// Reset forgets what was counted.
func (y yandexFolder) Reset() { y.Account.ResetStats() }

// Open makes the backend; a request reaches the folder through memory.
func (y yandexFolder) Open(ctx context.Context, limits []budget.Window, reg prometheus.Registerer) (cloud.Cloud, func(context.Context) error, error) {
	waits, err := budget.NewMetrics(reg)
	if err != nil {
		return nil, nil, err
	}
	c, err := yandex.New(ctx, yandex.Config{
		Credentials: func() (string, error) { return y.Account.Token, nil },
		Endpoint:    "http://127.0.0.1:1", Dial: y.Account.Dial, Folder: y.Account.Folder, Zone: emulator.DefaultZone,
		ClusterID: "bench", Limits: limits, Metrics: remote.Metrics{Budget: waits}, SweepEvery: -1,
	})
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}
