package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// grace is how long calls may continue after the program was told to stop. Kubernetes kills it 30 seconds after that.
const grace = 25 * time.Second

// endGrace is how long the backend then has to undo incomplete work; the next program does the rest.
const endGrace = 3 * time.Second

// run is the whole program: it returns when ctx has ended and everything has stopped.
func run(ctx context.Context, args []string, environ driver.Environment, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "volumes" {
		err := runVolumes(ctx, args[1:], environ, stdout, stderr)
		if errors.Is(err, fault.InvalidArgument) && !errors.Is(err, driver.ErrCommandLine) {
			return fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
		}
		return err
	}
	if len(args) > 0 && args[0] == "doctor" {
		return runDoctor(ctx, args[1:], environ, stdout)
	}
	if len(args) > 0 && args[0] == "relocate" {
		return runRelocate(ctx, args[1:], environ, stdout, stderr)
	}
	if err := driver.CheckCommand(args, "doctor", "relocate", "volumes"); err != nil {
		return err
	}
	cfg, err := parse(args, environ, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if cfg.Version {
		_, err := fmt.Fprintln(stdout, "cloudblock-controller", version, commit)
		return err
	}
	log, err := driver.NewLogger(cfg.LogLevel, cfg.LogFormat, stderr)
	if err != nil {
		return err
	}
	if _, err := doctor.Start(ctx, (&examined{config: &cfg, log: log}).checks(), log.Sugar().Warnw); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	around := surroundings{log: log, registry: driver.Named(registry, cfg.Names)}
	var guard *account // nil: the credentials do not change
	if cfg.file != nil {
		guard = newAccount(cfg, log)
		cfg.token = guard.credentials
		if err := cfg.file.watch(around, guard); err != nil {
			return err
		}
	}
	bare, end, err := cfg.backend.open(ctx, cfg, around)
	if err != nil {
		return fmt.Errorf("open --cloud %s: %w", cfg.Cloud, err)
	}
	announcing, stop := context.WithTimeout(ctx, priceTimeout)
	var announced sync.WaitGroup
	announced.Go(func() { announceSnapshots(announcing, cfg, bare, log) })
	err = serve(ctx, cfg, bare, guard, around, registry)
	stop()
	announced.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endGrace)
	defer cancel()
	return errors.Join(err, end(ending))
}

// priceTimeout is the timeout of the read of a price for the log.
const priceTimeout = 10 * time.Second

// announceSnapshots logs what snapshots cost that are billed as volumes.
func announceSnapshots(ctx context.Context, cfg config, c cloud.Cloud, log *zap.Logger) {
	if !cfg.backend.snapshotsAreVolumes || !c.Capabilities().Snapshots {
		return
	}
	usual, regions, err := cfg.backend.prices(ctx, c)
	log.Warn("each snapshot is a copy of its volume, and is billed as a volume", zap.Float64("dollars_per_gib_and_month", usual), zap.Any("in_regions", regions), zap.Error(err))
}

// serve serves CSI calls with the backend, and the metrics of a registry, until ctx ends.
func serve(ctx context.Context, cfg config, bare cloud.Cloud, guard *account, around surroundings, registry *prometheus.Registry) error {
	log := around.log
	blocks, hasBlocks := bare.(cloud.SnapshotBlocks)
	if !cfg.backend.perNode {
		counting := newCensus(bare, cfg.clusterID)
		if err := register(around.registry, counting); err != nil {
			return err
		}
		bare = counting
	}
	if guard != nil {
		go guard.watch(ctx, bare)
		bare = noting{bare, guard}
	}
	if err := register(registry, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return err
	}
	decorated := middleware.Stack(bare, wait.Backoff{})
	reach := &reachability{check: decorated.Check, log: log}
	if err := reach.register(around.registry); err != nil {
		return err
	}
	_ = reach.ask(ctx) // ask logs a failure; the program serves nevertheless
	ready, note := reach.ask, func() string { return "" }
	if guard != nil {
		ready = func(ctx context.Context) error { return errors.Join(reach.ask(ctx), guard.refusal()) }
		note = guard.note
	}
	service := controller.New(decorated, cfg.Names, cfg.tags...)
	return driver.Serve(ctx, driver.Config{
		Names: cfg.Names, Features: service.Features(), Version: version, Commit: commit,
		Endpoint: cfg.Endpoint, HTTPEndpoint: cfg.HTTPEndpoint,
		Log: log, Registry: registry, Grace: grace, Ready: ready, ReadyNote: note,
	}, func(r grpc.ServiceRegistrar) {
		csi.RegisterControllerServer(r, service)
		if hasBlocks {
			csi.RegisterSnapshotMetadataServer(r, controller.NewBlocks(blocks))
		}
		if cfg.backend.perNode {
			csi.RegisterNodeServer(r, driver.NewNodeIdentity(cfg.Names, cfg.LocalNode()))
		}
	})
}
