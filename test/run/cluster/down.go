package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/cluster/cgroups"
)

// down takes the cluster down, whatever is left of it.
func down(ctx context.Context, l layout) error {
	held, err := lock(l)
	if err != nil {
		return err
	}
	defer held.Close()
	begin := time.Now()
	if err := clean(ctx, l); err != nil {
		return err
	}
	fmt.Printf("the cluster is down (%.1f s)\n", time.Since(begin).Seconds())
	return nil
}

// clean ends every process of the cluster, frees its loop devices and removes its cgroups and files.
// It needs nothing to be alive, so it works after a crash and when nothing runs.
func clean(ctx context.Context, l layout) error {
	s, err := readState(l)
	if err != nil {
		return err
	}
	groups, err := cgroups.Hierarchies()
	if err != nil {
		return err
	}
	// With its holder each machine ends whole; what the cgroups still list is what was on its way in.
	for _, m := range s.Machines {
		if m.alive() {
			if err := syscall.Kill(m.Holder, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end %s: %w", m.Name, err)
			}
		}
	}
	if err := waitFor(ctx, "end all processes", 20*time.Second, func(context.Context) error { return killAll(groups) }); err != nil {
		return err
	}
	// Before the emulator looks: it leaves what is used, and nobody is left who would use it.
	if err := waitFor(ctx, "free the loop devices", 20*time.Second, func(context.Context) error { return freeLoops(l) }); err != nil {
		return err
	}
	if err := endEmulator(ctx, s.Emulator); err != nil {
		return err
	}
	// What it attached in between, if it could not end by itself.
	if err := waitFor(ctx, "free the emulator's loop devices", 20*time.Second, func(context.Context) error { return freeLoops(l) }); err != nil {
		return err
	}
	if err := waitFor(ctx, "remove the cgroups", 10*time.Second, func(context.Context) error { return cgroups.Remove(groups) }); err != nil {
		return err
	}
	if err := leaveHost(ctx); err != nil {
		return err
	}
	// The mounts below it are gone with the namespaces; a busy folder here would be one that is not.
	if err := waitFor(ctx, "remove "+l.run(), 10*time.Second, func(context.Context) error { return os.RemoveAll(l.run()) }); err != nil {
		return err
	}
	return os.RemoveAll(l.kubeconfig())
}

// killAll ends what is in the cluster's cgroups, and is done when nothing is.
func killAll(groups []cgroups.Hierarchy) error {
	left, err := cgroups.Processes(groups, "")
	if err != nil || len(left) == 0 {
		return err
	}
	for _, pid := range left {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return fmt.Errorf("still running: processes %v", left)
}

// freeLoops detaches the loop devices of every node's pool and of all emulated volumes, and is done when
// none is attached.
func freeLoops(l layout) error {
	pools, err := filepath.Glob(l.pool("*"))
	if err != nil {
		return err
	}
	volumes, err := emulatedDisks(l)
	if err != nil {
		return err
	}
	for _, file := range append(pools, volumes...) {
		busy, err := loops.DetachAll(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // the emulator still runs, and deleted it
		}
		if err != nil {
			return err
		}
		if busy {
			return fmt.Errorf("%s is still attached", file)
		}
	}
	return nil
}
