// Command mutants plants one fault at a time into the source of the programs and runs the tests of the package that should
// find it. A fault that no test finds is a gap in the tests, and the command fails. No file of the tree changes: the go
// command reads the changed file from an overlay.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// mutant is a fault: the text of a file that stands there once, what takes its place, and the package whose tests, which
// need no root, have to fail by it.
type mutant struct {
	what, file, old, new, pkg string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	only := flag.String("only", "", "plant only the faults whose file has this in its path")
	flag.Parse()
	err := run(ctx, *only, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sound, planted, survivors := map[string]bool{}, 0, 0
	for _, m := range mutants {
		if !strings.Contains(m.file, only) {
			continue
		}
		if !sound[m.pkg] {
			if _, err := goTest(ctx, m.pkg, ""); err != nil {
				return fmt.Errorf("the tests of %s fail without a fault: %w", m.pkg, err)
			}
			sound[m.pkg] = true
		}
		began := time.Now()
		killer, err := plant(ctx, dir, m)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", m.file, m.what, err)
		}
		planted++
		if killer == "" {
			survivors++
			killer = "SURVIVES"
		}
		_, _ = fmt.Fprintf(out, "%-60s %-44s %s (%.0f s)\n", m.what, m.file, killer, time.Since(began).Seconds())
	}
	if survivors > 0 || planted == 0 {
		return fmt.Errorf("%d of %d faults are found by no test", survivors, planted)
	}
	_, _ = fmt.Fprintf(out, "all %d faults are found\n", planted)
	return nil
}

// plant returns the first test that fails by a fault; "" where all pass.
func plant(ctx context.Context, dir string, m mutant) (killer string, err error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("the text to replace stands there %d times, want once", n)
	}
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	output, err := goTest(ctx, m.pkg, overlay)
	if err == nil {
		return "", nil
	}
	for line := range strings.Lines(output) {
		if name, failed := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); failed {
			killer, _, _ = strings.Cut(name, " ")
			return killer, nil
		}
		if strings.HasPrefix(line, "panic: ") {
			return strings.TrimSpace(line), nil
		}
	}
	return "", fmt.Errorf("no test has failed, but the tests could not be run: %w\n%s", err, output)
}

// goTest runs the tests of a package that need no root, one variant each.
func goTest(ctx context.Context, pkg, overlay string) (output string, err error) {
	args := []string{"test", "-short", "-count=1", "-failfast", "-vet=off"}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if ctx.Err() != nil {
		return "", errors.Join(ctx.Err(), err)
	}
	if err != nil && overlay == "" {
		err = fmt.Errorf("%w\n%s", err, out.String())
	}
	return out.String(), err
}
