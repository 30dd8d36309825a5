package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
)

const (
	// grace is how long running calls may continue after the signal to stop.
	grace = 10 * time.Second
	// callLimit is the timeout of a call without a deadline, which is the kubelet's. A mkfs or fsck that the call started
	// continues.
	callLimit = 2 * time.Minute
	// formatGrace is how long a mkfs or fsck whose call has ended may continue after the grace period: what the pod's
	// terminationGracePeriodSeconds of 30 leaves. A mkfs that is killed with the program may leave a disk that is
	// never formatted again.
	formatGrace = 17 * time.Second
)

// run is the program without main: it returns after ctx has ended and the server has stopped.
func run(ctx context.Context, args []string, environ driver.Environment, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "doctor" {
		return runDoctor(ctx, args[1:], environ, stdout)
	}
	if len(args) > 0 && args[0] == "check" {
		return runCheck(ctx, args[1:], stdout)
	}
	if err := driver.CheckCommand(args, "check", "doctor"); err != nil {
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
		_, err := fmt.Fprintln(stdout, "cloudblock-node", version, commit)
		return err
	}
	log, err := driver.NewLogger(cfg.LogLevel, cfg.LogFormat, stderr)
	if err != nil {
		return err
	}
	unready, err := doctor.Start(ctx, host{&cfg, "/", environ.Get("PATH")}.checks(), log.Sugar().Warnw)
	if err != nil {
		return err
	}
	return serve(ctx, cfg, unready, log)
}

// serve serves calls until ctx ends. An error in unready is the response of /readyz.
func serve(ctx context.Context, cfg config, unready error, log *zap.Logger) error {
	registry := prometheus.NewRegistry()
	named := driver.Named(registry, cfg.Names)
	counts, err := newMetrics(named, log)
	if err != nil {
		return err
	}
	mounts := mount.New(mount.Config{Dir: cfg.kubeletDir, Memory: driver.ShareOfMemory(), Log: log.Sugar().Infow})
	folder, err := cfg.folder()
	if err != nil {
		return err
	}
	base := node.Config{Formats: device.NewFormats(filepath.Join(folder, "formats")), Names: cfg.Names, Mounter: mounts, CgroupDir: cfg.cgroupDir, DeadMount: counts.deadMount, Metrics: counts}
	open := openPools
	if cfg.disks != nil {
		open = openDisks
	}
	p, err := open(ctx, cfg, folder, base, log)
	switch {
	case err != nil && ctx.Err() != nil:
		log.Info("stopped before anything was served", zap.Error(err))
		return nil
	case err != nil:
		return err
	}
	defer p.release()
	if p.slots != nil {
		if err := named.Register(&slotMetrics{slots: p.slots, log: log}); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	if err := named.Register(&ioMetrics{p.server.Staged}); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if err := p.server.Restore(); err != nil {
		log.Warn("not every volume that is staged is known; the kubelet's next call for it names it", zap.Error(err))
	}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { p.server.Watch(watching) })
	defer func() { stop(); watch.Wait() }()
	if unready != nil {
		log.Error("volumes cannot be served; /readyz stays 503", zap.Error(unready))
		p.ready = func(context.Context) error { return unready }
	}
	err = driver.Serve(ctx, driver.Config{
		Names: cfg.Names, Version: version, Commit: commit, Features: cfg.features(),
		Endpoint: cfg.Endpoint, HTTPEndpoint: cfg.HTTPEndpoint,
		Log: log, Registry: registry, Grace: grace, CallLimit: callLimit, Ready: p.ready,
	}, func(r grpc.ServiceRegistrar) { csi.RegisterNodeServer(r, p.server) })
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), formatGrace)
	defer cancel()
	if waitErr := p.server.Wait(waiting); waitErr != nil {
		log.Warn("stopping all the same; the next stage repeats it", zap.Error(waitErr))
	}
	return err
}

// plugin is the node service for the local pool or for attached disks.
type plugin struct {
	server *node.Server
	// ready returns an error while volumes cannot be served; nil: always ready.
	ready func(ctx context.Context) error
	// slots returns how many slots for volumes the machine has, and how many of them volumes use; nil: it has no slots.
	slots func() (all, used int64, err error)
	// release unlocks the folder for the next node program.
	release func()
}

// openPools serves the volumes of the pools on this node.
func openPools(ctx context.Context, cfg config, folder string, base node.Config, log *zap.Logger) (plugin, error) {
	pools, err := pools.Open(ctx, cfg.pools(mountTable)...)
	if err != nil {
		return plugin{}, fmt.Errorf("open the pool of --local-pool: %w", err)
	}
	for _, p := range cfg.Pools() {
		if _, err := pools.Named(ctx, cmp.Or(p.Name, pool.DefaultName)); err != nil {
			log.Warn("pool is not open", zap.Error(err))
		}
	}
	release, err := lockPools(ctx, pools, log)
	if err != nil {
		return plugin{}, err
	}
	disks := device.NewPools(pools, cfg.NodeID, device.LoopConfig{})
	if err := disks.Check(ctx); err != nil {
		log.Error("not every volume can be staged on this node; /readyz stays not ready until that is mended", zap.Error(err))
	}
	base.Info, base.Devices, base.SizeStep, base.NeverWritten = cfg.LocalNode(), disks, pool.SizeStep, disks.NeverWritten
	base.MarkWritten = disks.MarkWritten
	base.Records = device.NewPlaces(filepath.Join(folder, "volumes"))
	base.Backend = poolHealth{pools: pools, node: cfg.NodeID, mounts: base.Mounter}
	return plugin{server: node.New(base), ready: disks.Check, release: release}, nil
}

// openDisks serves the disks that a cloud attaches to this machine.
func openDisks(ctx context.Context, cfg config, folder string, base node.Config, log *zap.Logger) (plugin, error) {
	release, err := lockFolder(ctx, folder, log)
	if err != nil {
		return plugin{}, err
	}
	disks := cfg.newDisks("/")
	info, limit, err := identify(ctx, cfg, disks.Foreign, log)
	if err != nil {
		release()
		return plugin{}, err
	}
	log.Info("this machine", zap.String("node_id", info.ID), zap.String("zone", info.Zone), zap.Int64("max_volumes", info.MaxVolumes),
		zap.Int64("max_disks", limit.MaxDisks), zap.Int64("reserved", limit.Reserved))
	base.Info, base.Devices, base.MaxVolumes = info, disks, limit.Volumes
	base.Records = device.NewRecords(filepath.Join(folder, "volumes"))
	slots := func() (all, used int64, err error) {
		if used, err = disks.Volumes(ctx); err == nil {
			all, err = limit.Volumes()
		}
		return all, used, err
	}
	return plugin{server: node.New(base), slots: slots, release: release}, nil
}

// folder returns the folder of the socket, which persists across restarts of the container and the machine.
func (c *config) folder() (string, error) {
	socket, err := driver.SocketPath(c.Endpoint)
	return filepath.Dir(socket), err
}

// newDisks returns the ByID that finds the disks of the machine below root.
func (c *config) newDisks(root string) *device.ByID {
	return device.NewByID(device.ByIDConfig{
		DeviceDir: c.deviceDir, LinkPrefix: c.disks.LinkPrefix, MayBeVolume: c.disks.mayBeVolume,
		KubeletDir: realPath(c.kubeletDir), SysDir: filepath.Join(root, "sys"),
	})
}

// realPath resolves the symbolic links of a path, because the mount table has resolved paths. It returns a path that
// does not exist unchanged.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}
