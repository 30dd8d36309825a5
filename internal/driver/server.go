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

// messageLimit is the maximum size of a request. The largest legal one has some tens of KiB: a CreateVolume with parameters and
// secrets of 4 KiB each, topologies, and a name (spec.md, "Size Limits").
const messageLimit = 128 << 10

// Config configures Serve. Names, Grace and one of Endpoint and Listener have no default.
type Config struct {
	Names Names
	// Features are the capabilities of the plugin that not every cloud has.
	Features Features
	// Version and Commit identify the build.
	Version, Commit string
	// Endpoint is the socket, as unix:///absolute/path.
	Endpoint string
	// Listener, if not nil, is used instead of a socket at Endpoint: an in-memory transport, or a socket that the caller has
	// opened. Serve closes it.
	Listener net.Listener
	// HTTPEndpoint is the host:port of /metrics, /healthz and /readyz; empty: none.
	HTTPEndpoint string
	// Log receives one line per RPC; nil: none.
	Log *zap.Logger
	// Registry has the metrics of /metrics; nil: a new one.
	Registry *prometheus.Registry
	// CallLimit is the timeout of an RPC without a deadline; 0: no timeout.
	CallLimit time.Duration
	// Grace is how long running RPCs may continue after the context has ended.
	Grace time.Duration
	// Ready checks what the program depends on; only /readyz calls it. nil: always ready.
	Ready func(ctx context.Context) error
	// ReadyNote returns text for /readyz after "ok"; nil: none.
	ReadyNote func() string
}

// Serve serves CSI calls on its socket until the context ends or a listener fails. It implements the Identity service; register
// adds the others. When the context ends, it accepts no new calls, waits for running calls and returns nil, or an error if some
// were still running after the grace period. Those may run on, until the process ends, if they do not end with their contexts.
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
	interceptors := []grpc.UnaryServerInterceptor{watch.observe, watch.mapErrors, recoverPanics, boundCalls(), limitCalls(cfg.CallLimit)}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(interceptors...), grpc.StreamInterceptor(overStream(interceptors)),
		grpc.MaxRecvMsgSize(messageLimit),
	)
	csi.RegisterIdentityServer(server, id)
	register(server)
	return run(ctx, cfg, server, socket, failed)
}

// cutOff is how long calls may continue after their contexts were canceled. One in the kernel, on a disk that hangs, may never end.
const cutOff = time.Second

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
		server.Stop() // cancels the contexts of the remaining calls
		select {
		case <-drained:
		case <-time.After(cutOff):
		}
		return fmt.Errorf("stop: calls were still running after %s", cfg.Grace)
	}
}

const (
	// socketPathLimit is the maximum length of a path in the kernel's sockaddr_un, with its terminating zero.
	socketPathLimit = 107
	// socketMode lets the sidecars of the same group connect, and no other users.
	socketMode = 0o660
	// dialTimeout is the timeout of the check whether another process serves an existing socket.
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

// removeStaleSocket removes the socket of a killed process: one that no process serves. It does not remove anything else at path,
// and returns an error.
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

// memoryShare is the percentage of the container's memory that Go's runtime uses before it collects garbage as hard as possible.
// The rest is for the mappings of the program itself and for the kernel's memory on its behalf.
const memoryShare = 80

// LimitMemory sets the memory limit of Go's runtime from that of the container, which the runtime does not read itself. Without a
// limit it changes nothing.
func LimitMemory() {
	if limit := ShareOfMemory(); limit > 0 {
		debug.SetMemoryLimit(limit)
	}
}

// ShareOfMemory returns how much of the container's memory one program in it may use, in bytes; 0: no limit.
func ShareOfMemory() int64 { return cgroupMemory(os.DirFS("/")) / 100 * memoryShare }

// cgroupMemory returns the memory limit of the cgroup of this process in bytes, or 0 if there is none. In a container the files of
// its own cgroup are at the root of the mount, whatever path /proc/self/cgroup has (cgroups(7)).
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
			if err == nil && limit > 0 && limit < 1<<60 { // without a limit, version 1 has a large number and version 2 the word max
				return limit
			}
			break
		}
	}
	return 0
}
