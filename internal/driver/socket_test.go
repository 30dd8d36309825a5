package driver_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestSocketPath(t *testing.T) {
	if got, err := driver.SocketPath("unix:///csi/csi.sock"); got != "/csi/csi.sock" || err != nil {
		t.Errorf("SocketPath = %q, %v", got, err)
	}
	for _, endpoint := range []string{
		"", "/csi/csi.sock", "unix:/csi/csi.sock", "unix://csi.sock", "unix://", "tcp://127.0.0.1:1", "unix:///a/../b.sock",
		"unix:///" + strings.Repeat("a", 107), "UNIX:///a.sock",
	} {
		if got, err := driver.SocketPath(endpoint); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("SocketPath(%q) = %q, %v, want an error", endpoint, got, err)
		}
	}
}

// The socket of a killed process is replaced.
func TestServeReplacesAStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stale.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	left.SetUnlinkOnClose(false) // as kill -9 does
	must(t, left.Close())
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Fatalf("no stale socket to begin with: %v, %v", info, err)
	}
	start(t, handlers{}, func(c *driver.Config) { c.Endpoint = "unix://" + path }) // fails unless Probe answers there
}

// Anything but a stale socket stays unchanged, and Serve fails.
func TestServeRefusesWhatIsThere(t *testing.T) {
	put := map[string]func(t *testing.T, path string){
		"a socket that somebody serves": func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
		},
		"a socket of another kind, on which a connect says nothing": func(t *testing.T, path string) {
			l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
		},
		"a file": func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte("data"), 0o600))
		},
		"a folder": func(t *testing.T, path string) {
			must(t, os.Mkdir(path, 0o700))
		},
		"a link": func(t *testing.T, path string) {
			must(t, os.Symlink(path+".elsewhere", path))
		},
	}
	for name, put := range put {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "csi.sock")
			put(t, path)
			before, err := os.Lstat(path)
			must(t, err)
			err = driver.Serve(waiting(t), driver.Config{Names: names(t), Endpoint: "unix://" + path}, func(grpc.ServiceRegistrar) {})
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("Serve = %v, want an error that names the path", err)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("what was there is gone: %v, %v", after, err)
			}
		})
	}
}

func TestServeRefusesAnHTTPAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	path := filepath.Join(t.TempDir(), "csi.sock")
	err = driver.Serve(waiting(t), driver.Config{
		Names: names(t), Endpoint: "unix://" + path, HTTPEndpoint: l.Addr().String(),
	}, func(grpc.ServiceRegistrar) {})
	if err == nil || !strings.Contains(err.Error(), "http endpoint") {
		t.Errorf("Serve = %v, want an error about the http endpoint", err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket was left behind")
	}
}
