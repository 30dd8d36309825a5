package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// messageLimit bounds a request. The largest legal one is some tens of KiB: a CreateVolume with parameters and secrets of
// 4 KiB each, topologies, and a name (spec.md, "Size Limits").
const messageLimit = 128 << 10

// Config is what Serve needs. Names, Grace and one of Endpoint and Listener have no default.
type Config struct {
	Names Names
	// Features are what the plugin can do beyond what every cloud's can.
	Features Features
	// Version and Commit say which build this is.
	Version, Commit string
	// Endpoint is the socket, as unix:///absolute/path.
	Endpoint string
	// Listener is used instead of a socket at Endpoint, if it is not nil: a transport in memory, or a
	// socket that somebody else opened. Serve closes it.
	Listener net.Listener
	// HTTPEndpoint is the host:port of /metrics, /healthz and /readyz; empty: none.
	HTTPEndpoint string
	// Log is where one line per RPC goes; nil: nowhere.
	Log *zap.Logger
	// Registry collects the metrics and is what /metrics shows; nil: a new one.
	Registry *prometheus.Registry
	// CallLimit bounds an RPC whose caller sets no deadline; 0: such an RPC may take any time.
	CallLimit time.Duration
	// Grace is how long RPCs under way may go on after the context ends.
	Grace time.Duration
	// Ready says whether what the program depends on works; only /readyz asks it. nil: always.
	Ready func(ctx context.Context) error
	// ReadyNote is what /readyz says after "ok"; nil: nothing.
	ReadyNote func() string
}

// Serve answers CSI calls on its socket until the context ends or a listener fails. The Identity
// service is its own; register adds the others. When the context ends it takes no new call, lets
// those under way finish and returns nil; an error if some were still running after the grace period.
func Serve(ctx context.Context, cfg Config, register func(grpc.ServiceRegistrar)) error {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	metrics, err := newMetrics(cfg)
	if err != nil {
		return err
	}
	socket := cfg.Listener
	if socket == nil {
		if socket, err = listen(ctx, cfg.Endpoint); err != nil {
			return err
		}
	}
	id := &identity{names: cfg.Names, version: cfg.Version, features: cfg.Features}
	failed := make(chan error, 2)
	stopHealth, err := serveHealth(ctx, cfg, id, failed)
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	defer stopHealth()

	watch := observer{log: cfg.Log, metrics: metrics}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(watch.observe, watch.mapErrors, recoverPanics, boundCalls(), limitCalls(cfg.CallLimit)),
		grpc.MaxRecvMsgSize(messageLimit),
	)
	csi.RegisterIdentityServer(server, id)
	register(server)
	return run(ctx, cfg, server, socket, failed)
}

func run(ctx context.Context, cfg Config, server *grpc.Server, socket net.Listener, failed chan error) error {
	go func() {
		if err := server.Serve(socket); err != nil {
			failed <- fmt.Errorf("serve %s: %w", cfg.Endpoint, err)
		}
	}()
	cfg.Log.Info("serving", zap.String("driver", cfg.Names.Driver), zap.String("endpoint", cfg.Endpoint),
		zap.String("http_endpoint", cfg.HTTPEndpoint), zap.String("version", cfg.Version), zap.String("commit", cfg.Commit))
	select {
	case err := <-failed:
		server.Stop()
		return err
	case <-ctx.Done():
	}
	cfg.Log.Info("stopping", zap.Duration("grace", cfg.Grace))
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		server.GracefulStop()
	}()
	grace := time.NewTimer(cfg.Grace)
	defer grace.Stop()
	select {
	case <-drained:
		return nil
	case <-grace.C:
		server.Stop() // cancels the contexts of the calls that are left
		<-drained
		return fmt.Errorf("stop: calls were still running after %s", cfg.Grace)
	}
}
