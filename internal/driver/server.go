package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
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

const (
	// socketPathLimit is what fits into the kernel's sockaddr_un with its closing zero.
	socketPathLimit = 107
	// socketMode lets the sidecars of the same group connect, and nobody else.
	socketMode = 0o660
	// dialTimeout bounds the question whether somebody answers on a socket that is already there.
	dialTimeout = 2 * time.Second
)

// SocketPath returns the path of an endpoint, which must be of the form unix:///absolute/path.
func SocketPath(endpoint string) (string, error) {
	path, isUnix := strings.CutPrefix(endpoint, "unix://")
	if !isUnix {
		return "", fmt.Errorf("endpoint %q: not of the form unix:///absolute/path.sock: %w", endpoint, fault.InvalidArgument)
	}
	if err := CheckPath(fmt.Sprintf("endpoint %q", endpoint), path); err != nil {
		return "", err
	}
	if len(path) > socketPathLimit {
		return "", fmt.Errorf("endpoint %q: the path is longer than the %d bytes a socket can have: %w",
			endpoint, socketPathLimit, fault.InvalidArgument)
	}
	return path, nil
}

// listen opens the endpoint's socket. The listener removes the file when it is closed.
func listen(ctx context.Context, endpoint string) (net.Listener, error) {
	path, err := SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	if err := removeStaleSocket(ctx, path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", endpoint, err)
	}
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", endpoint, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", endpoint, err), socket.Close())
	}
	return socket, nil
}

// removeStaleSocket removes what a killed process left at path: a socket on which nobody answers.
// Anything else that is there stays there.
func removeStaleSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("something that is not a socket is there (%s); remove it or choose another path", info.Mode().Type())
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(errors.New("another process serves this socket; stop it first"), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether another process serves this socket: %w", err)
	}
	return os.Remove(path)
}

// memoryShare is how many percent of its container's memory the heap takes before it is collected as hard as possible. The rest
// is for stacks, the program itself and what the kernel keeps for it.
const memoryShare = 80

// LimitMemory makes Go's runtime know how much memory the container has, which it does not find out by itself. Without a limit
// nothing changes.
func LimitMemory() {
	if limit := cgroupMemory(os.DirFS("/")); limit > 0 {
		debug.SetMemoryLimit(limit / 100 * memoryShare)
	}
}

// cgroupMemory returns how many bytes the cgroup of this process may have, or 0 if nothing limits it. A container has its own
// cgroup's files at the root of the mount, whatever /proc/self/cgroup calls it (cgroups(7)).
func cgroupMemory(root fs.FS) int64 {
	list, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(list)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		for _, folder := range []string{parts[2], "/"} {
			text, err := fs.ReadFile(root, path.Join(mount, folder, file))
			if err != nil {
				continue
			}
			limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && limit > 0 && limit < 1<<60 { // version 1 has a large number for none, version 2 the word max
				return limit
			}
			break
		}
	}
	return 0
}
