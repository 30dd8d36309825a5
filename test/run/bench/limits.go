package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts/backend"
)

// This file is the loads in simulated time: under the limits of an API, and with slow answers.

const (
	machines = 10
	// mostRefused is how much of the requests a limited cloud may refuse, in percent.
	mostRefused = 1
	// spare is what a cut budget has beyond what is needed.
	spare = 1.1
	// instant is a short time, in which a load is not even.
	instant = 10 * time.Second
)

// limit is a load under the limits of an API.
type limit struct {
	what   string
	takes  time.Duration
	atOnce int
	// cloud are the account's limits, told those that the controller is told of; nil: the documented ones.
	cloud, told []budget.Window
	// gets is how long the answer to each GET takes.
	gets time.Duration
}

// limitedRun is what came of it.
type limitedRun struct {
	measured
	// waits is how long requests waited for the budget on average, by priority.
	waits map[string]time.Duration
}

// limited plays loads under limits, in simulated time.
func (b *cloudBench) limited(t *testing.T, durations ...time.Duration) error {
	b.table.section(fmt.Sprintf("limited API, %d volumes, %d machines (in simulated time, in one process); bars: no call fails, 429 <= %d %%", volumes, machines, mostRefused))
	fmt.Fprintf(b.table.out, "  %-60s %8s %9s %5s %6s %6s   waited for budget: detach and look / attach / other write\n",
		"operations, at once, limits", "took", "requests", "429", "%", "failed")
	for _, takes := range durations {
		free, err := b.simulate(t, limit{takes: takes, atOnce: 16, told: endless})
		if err != nil {
			return err
		}
		b.table.limited(limit{what: "none", takes: takes, atOnce: 16}, free)
		for _, l := range b.target.bounded(free) {
			l.takes = takes
			run, err := b.simulate(t, l)
			if err != nil {
				return err
			}
			b.table.limited(l, run)
		}
	}
	return nil
}

// bounded are the loads under limits, after one without.
func (t target) bounded(free limitedRun) []limit {
	if len(t.limits) == 0 { // an account has no others than of what it runs at once
		return []limit{{what: t.bounds(), atOnce: 100}}
	}
	need := spare * float64(free.all())
	// Of the whole, and at each moment.
	hour := []budget.Window{{Calls: int(math.Ceil(need)), Per: time.Hour, FromHeaders: true}}
	steady := []budget.Window{{Calls: int(math.Ceil(need / free.took.Seconds() * instant.Seconds())), Per: instant, FromHeaders: true}}
	return []limit{
		{what: fmt.Sprintf("need + 10 %%: %s, learnt", text(hour)), atOnce: 16, cloud: hour, told: endless},
		{what: fmt.Sprintf("need + 10 %%: %s", text(steady)), atOnce: 16, cloud: steady, told: steady},
		{what: "the real ones: " + t.bounds(), atOnce: 16, cloud: t.limits},
		{what: "the real ones: " + t.bounds(), atOnce: 100, cloud: t.limits},
	}
}

// bounds are the real limits in words.
func (t target) bounds() string {
	if t.operations > 0 {
		return fmt.Sprintf("%d operations at once", t.operations)
	}
	return text(t.limits)
}

// endless is what a controller is told that has to find out by itself.
var endless = []budget.Window{{Calls: 1e8, Per: time.Hour, FromHeaders: true}}

func text(limits []budget.Window) (s string) {
	for i, l := range limits {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%d in %s", l.Calls, plain(l.Per))
	}
	return s
}

// limited prints a run in one line. Whoever waits for a detach waits for a pod's move to another machine.
func (t *table) limited(l limit, run limitedRun) {
	w := run.waits
	fmt.Fprintf(t.out, "  %-60s %8s %9d %5d %6.2f %6d   %s / %s / %s\n",
		fmt.Sprintf("%s, %d, %s", l.takes, l.atOnce, l.what), run.took.Round(time.Second), run.all(), run.refused, run.refusedPart(), len(run.failed),
		short(w["detach"]), short(w["attach"]), short(w["write"]))
	name := fmt.Sprintf("limits %s, operations of %s, %d at a time: ", l.what, l.takes, l.atOnce)
	for _, err := range run.failed[:min(3, len(run.failed))] {
		fmt.Fprintln(t.out, "    "+err.Error())
	}
	t.miss(name+"calls failed", len(run.failed) > 0)
	t.miss(name+"refused requests", run.refusedPart() > mostRefused)
}

// plain is a duration without its zeros.
func plain(d time.Duration) string {
	return strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// slow measures, in simulated time, an API whose every GET takes long: all calls end well, and no more requests are
// made than of a fast one.
func (b *cloudBench) slow(t *testing.T) error {
	b.table.section(fmt.Sprintf("every GET takes long, %d volumes, 16 at a time, operations of 2 s (in simulated time, in one process)", volumes))
	fast := 0
	for _, gets := range []time.Duration{0, 2500 * time.Millisecond, 10 * time.Second} {
		run, err := b.simulate(t, limit{takes: 2 * time.Second, atOnce: 16, told: endless, gets: gets})
		if err != nil {
			return err
		}
		if gets == 0 {
			fast = run.all()
		}
		name := fmt.Sprintf("GETs of %s: ", gets)
		b.table.zero(name+"calls that failed", len(run.failed))
		b.table.row(name+"requests", float64(run.all()), 1.05*float64(fast), "") // which operations share a list is chance
	}
	return nil
}

// simulate plays a load in simulated time.
func (b *cloudBench) simulate(t *testing.T, l limit) (run limitedRun, err error) {
	synctest.Test(t, func(t *testing.T) {
		run, err = b.inBubble(t.Context(), l)
	})
	return run, err
}

func (b *cloudBench) inBubble(ctx context.Context, l limit) (run limitedRun, err error) {
	acc, err := setting{machines: machines, takes: l.takes, made: l.takes, limits: l.cloud, gets: l.gets, inMemory: true}.start(ctx, b.target)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, acc.Close()) }()
	reg := prometheus.NewRegistry()
	client, end, err := serve(ctx, acc, l.told, reg)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, end()) }()
	do := &load{volumes: volumes, atOnce: l.atOnce, client: client, machines: acc.Machines(), usable: usable(acc)}
	took := do.run(ctx)
	run.measured = measured{counted: countedOf(acc), calls: do.calls, changes: changesOf(acc), failed: do.failed, took: took}
	if run.waits, err = waits(reg); err != nil {
		return run, err
	}
	return run, sound(acc, do.failed)
}

// serve starts a controller in this process; only memory connects it with its callers and its cloud.
func serve(ctx context.Context, acc accounts.Account, told []budget.Window, reg prometheus.Registerer) (csi.ControllerClient, func() error, error) {
	spent, err := budget.NewMetrics(reg)
	if err != nil {
		return nil, nil, err
	}
	bare, err := backend.Open(ctx, acc, backend.Config{ClusterID: "bench", Limits: told, Budget: spent, SweepEvery: -1})
	if err != nil {
		return nil, nil, err
	}
	names, err := driver.NewNames(acc.Name(), string(bare.Capabilities().Scope), "", nil)
	if err != nil {
		return nil, nil, err
	}
	service := controller.New(middleware.Stack(bare, wait.Backoff{}), names)
	listener := bufconn.Listen(1 << 18)
	conn, err := grpc.NewClient("passthrough:///controller", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		return nil, nil, err
	}
	alive, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- driver.Serve(alive, driver.Config{Names: names, Features: service.Features(), Listener: listener, Grace: time.Second},
			func(r grpc.ServiceRegistrar) { csi.RegisterControllerServer(r, service) })
	}()
	return csi.NewControllerClient(conn), func() error {
		err := conn.Close()
		stop()
		return errors.Join(err, <-served, bare.Close(ctx))
	}, nil
}

// waits reads how long requests waited for the budget on average.
func waits(reg *prometheus.Registry) (map[string]time.Duration, error) {
	families, err := reg.Gather()
	if err != nil {
		return nil, err
	}
	mean := map[string]time.Duration{}
	for _, f := range families {
		if f.GetName() != "cloudblock_api_budget_wait_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			mean[m.GetLabel()[0].GetValue()] = time.Duration(h.GetSampleSum() / float64(h.GetSampleCount()) * float64(time.Second))
		}
	}
	return mean, nil
}
