// Command cloudblock-node is the node program: it formats, mounts and publishes the volumes that are
// on its machine, for the kubelet, over CSI. It needs no cloud credentials and no Kubernetes API.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Set by the linker.
var version, commit = "unknown", "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, fault.Text(err))
	if errors.Is(err, driver.ErrCommandLine) {
		os.Exit(2)
	}
	os.Exit(1)
}
