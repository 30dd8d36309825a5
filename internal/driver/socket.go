package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

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

// CheckSocketFolder returns an error if the folder of the endpoint's socket is missing, before state is written next to
// it. The endpoint itself has been checked.
func CheckSocketFolder(endpoint string) error {
	folder := filepath.Dir(strings.TrimPrefix(endpoint, "unix://"))
	info, err := os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--endpoint: the folder %s does not exist", folder)
	case errors.Is(err, syscall.ENOTDIR) || err == nil && !info.IsDir():
		return fmt.Errorf("--endpoint: %s is no folder", folder)
	}
	return InFlag("--endpoint", err)
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
