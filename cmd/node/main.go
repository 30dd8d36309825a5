// Command cloudblock-node is the node program: it formats, mounts and publishes the volumes that are
// on its machine, for the kubelet, over CSI. It needs no cloud credentials and no Kubernetes API.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Set by the linker.
var version, commit = "unknown", "unknown"

// mountTable is where pools are looked for; empty: the kernel's. Tests that cannot mount have one of their own.
var mountTable string

// collectAt is how many percent the heap may grow before it is collected: the program waits nearly all of its time, and its memory
// is taken from the pods of the node.
const collectAt = 50

func main() {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil { // passphrases are on the heap
		fmt.Fprintln(os.Stderr, "switch core dumps off:", err)
		os.Exit(1)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		driver.LimitMemory()
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
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
