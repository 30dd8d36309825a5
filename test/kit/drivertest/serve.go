// Package drivertest is what the tests of the CSI services and of both programs have in common: a server on a
// real socket, a client of it, a log, and the command lines that no program takes.
//
// Only _test.go files import this package.
package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// Patience bounds every wait of a test; nothing takes that long.
const Patience = 20 * time.Second

// Waiting returns a context for what a test waits for.
func Waiting(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Serve serves what register adds until the end of the test, on a socket of its own unless the config names
// one, and returns a connection to it when it is ready.
func Serve(t testing.TB, cfg driver.Config, register func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	if cfg.Endpoint == "" {
		cfg.Endpoint = Endpoint(t)
	}
	if cfg.Grace == 0 {
		cfg.Grace = Patience
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- driver.Serve(ctx, cfg, register) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	conn := Dial(t, cfg.Endpoint)
	Ready(t, conn)
	return conn
}

// Endpoint returns the address of a socket that nobody has. Its path is short, as that of a socket has to be.
func Endpoint(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi")
	expect.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return "unix://" + filepath.Join(dir, "csi.sock")
}

// Dial returns a connection for the length of the test. The server may come later; the usual pause between two attempts
// to connect would be a second.
func Dial(t testing.TB, endpoint string) *grpc.ClientConn {
	t.Helper()
	often := backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: often, MinConnectTimeout: Patience}))
	expect.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Ready waits until the server says that it is ready.
func Ready(t testing.TB, conn *grpc.ClientConn) {
	t.Helper()
	probe, err := csi.NewIdentityClient(conn).Probe(Waiting(t), &csi.ProbeRequest{}, grpc.WaitForReady(true))
	if err != nil || !probe.GetReady().GetValue() {
		t.Fatalf("Probe = %v, %v, want ready", probe, err)
	}
}

// Page returns the status and the text of a page of a program.
func Page(t testing.TB, url string) (code int, text string) {
	t.Helper()
	answer := expect.Fetch(t, http.MethodGet, url, "")
	return answer.Status, answer.Body
}

// FreeAddress returns a loopback address on which the test, or a program of it, can listen until the test ends. A socket that is
// bound and does not listen keeps its port: the kernel gives the port to no other that asks for any, and SO_REUSEADDR, which Go sets
// on every listener, lets one listen on it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	expect.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	expect.NoError(t, err)
	bound, err := unix.Getsockname(fd)
	expect.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
}

// Log is a log that may be read while it is written. The zero value is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Sync makes the log one that zap can write to.
func (l *Log) Sync() error { return nil }

// String returns what was logged so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Take returns what was logged so far, and empties the log.
func (l *Log) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// Until returns a context that ends when the log has these words, or Patience is over.
func (l *Log) Until(ctx context.Context, words string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	go func() {
		defer cancel()
		for ctx.Err() == nil && !strings.Contains(l.String(), words) {
			<-time.After(time.Millisecond)
		}
	}()
	return ctx, cancel
}
