// Command cloudblock-controller is the controller program: it creates, attaches, grows and deletes volumes in one cloud, for the
// sidecars of Kubernetes, over CSI.
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

// mountTable is the mount table in which pools are looked up; empty: the kernel's. Tests that cannot mount have their own.
var mountTable string

// collectAt is the growth of the heap, in percent, after which it is collected. The program waits for clouds nearly all of its
// time, and each of many concurrent calls waits with its stack: memory costs more than CPU time.
const collectAt = 50

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		driver.LimitMemory()
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, fault.Text(err))
	if errors.Is(err, driver.ErrCommandLine) {
		os.Exit(2)
	}
	os.Exit(1)
}
