package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// Check is one thing that a program needs. Each program has one list of them, which its start and doctor run in order.
type Check struct {
	// Name is that of its findings.
	Name string
	// Find adds what it finds. It adds nothing if all is well and a later check of the same name says so.
	Find func(ctx context.Context, r *Report)
	// Needs is the name of the checks before it without which this one is left out; empty: none.
	Needs string
	// At the start a finding that is not OK is logged. If Refuses, it ends the program instead; if Unready, /readyz answers with it.
	Refuses, Unready bool
	// DoctorOnly is why the start leaves the check out; empty: it does not.
	DoctorOnly string
	// Patience is how long doctor waits for the check, if not forever. It does not bound the start.
	Patience time.Duration
}

// Examine returns what all checks find.
func Examine(ctx context.Context, checks []Check) (all Report) {
	failed := map[string]bool{}
	for _, c := range checks {
		bounded, cancel := ctx, func() {}
		if c.Patience > 0 {
			bounded, cancel = context.WithTimeout(ctx, c.Patience)
		}
		all = append(all, c.run(bounded, failed)...)
		cancel()
	}
	return all
}

// Start runs the checks of a start. It returns what keeps the program from being ready, and what ends it.
func Start(ctx context.Context, checks []Check, warn func(message string, keysAndValues ...any)) (unready, refusal error) {
	failed := map[string]bool{}
	for _, c := range checks {
		if c.DoctorOnly != "" || refusal != nil && c.Patience > 0 { // a program that ends does not wait for a slow check first
			continue
		}
		for _, f := range c.run(ctx, failed) {
			switch err := errors.New(f.text() + "; " + f.Remedy); {
			case f.State == OK:
			case c.Refuses:
				refusal = errors.Join(refusal, err)
			case c.Unready:
				unready = errors.Join(unready, err)
			default:
				warn("a check failed", "check", f.Check, "error", err)
			}
		}
	}
	return unready, refusal
}

// run returns what the check finds, and adds it to the failed ones if something is wrong.
func (c Check) run(ctx context.Context, failed map[string]bool) (found Report) {
	if !failed[c.Needs] {
		c.Find(ctx, &found)
	}
	failed[c.Name] = failed[c.Name] || failed[c.Needs] || slices.ContainsFunc(found, func(f Finding) bool { return f.State == Wrong })
	return found
}

// Socket is the check of the folder of a program's socket, before state is written next to it.
func Socket(endpoint string) Check {
	return Check{Name: "socket", Refuses: true, Find: func(_ context.Context, r *Report) {
		path, _ := driver.SocketPath(endpoint) // as checked
		folder := filepath.Dir(path)
		switch err := syscall.Access(folder+"/.", 0b11); { // write and search
		case errors.Is(err, fs.ErrNotExist):
			r.Warn("socket", fmt.Errorf("--endpoint: the folder %s does not exist", folder), "make or mount the folder; doctor alone does not need it")
		case err != nil:
			r.Wrong("socket", fmt.Errorf("--endpoint: no socket can be made in %s: %w", folder, err), "let the program write there, or set another path")
		default:
			r.OK("socket", "it can be made in %s", folder)
		}
	}}
}

// Pools is the check of a node's pools.
func Pools(configs []pool.Config) Check {
	return Check{Name: "pool", DoctorOnly: "the start opens the pools, and fails alike", Find: func(ctx context.Context, r *Report) {
		r.Pools(ctx, configs...)
	}}
}
