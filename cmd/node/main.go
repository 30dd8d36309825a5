// Command cloudblock-node is the node program: it formats, mounts and publishes the volumes on its machine, for the kubelet, over
// CSI. It needs no cloud credentials and no Kubernetes API.
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
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/check"
)

// Set by the linker.
var version, commit = "unknown", "unknown"

// mountTable is the mount table in which pools are looked up; empty: the kernel's. Tests that cannot mount have their own.
var mountTable string

// collectAt is the growth of the heap, in percent, after which it is collected. The program waits nearly all of its time, and the
// pods of the node lack the memory that it uses.
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
	if errors.Is(err, driver.ErrCommandLine) || errors.Is(err, check.ErrUnchecked) {
		os.Exit(2)
	}
	os.Exit(1)
}
