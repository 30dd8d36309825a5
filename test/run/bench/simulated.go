package main

import (
	"context"
	"errors"
	"net"
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
