package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// outcome is what became of a test.
type outcome string

const (
	passed  outcome = "pass"
	missing outcome = ""
)

// String prints a test that did not run as what it is.
func (o outcome) String() string {
	if o == missing {
		return "MISSING"
	}
	return string(o)
}

// event is one line of `go test -json` (go doc cmd/test2json).
type event struct{ Action, Test, Output string }

// detectorCrashed is what the race detector prints when it ends a test process in which simulated clocks ran, for a
// reason of its own (golang/go#78156). It says nothing about the tests.
const detectorCrashed = "ThreadSanitizer: CHECK failed"

// runTests runs the named tests of each package and returns what became of them, subtests included.
func runTests(ctx context.Context, tests map[string][]string, out io.Writer) (map[test]outcome, error) {
	results := map[test]outcome{}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		begin := time.Now()
		fmt.Fprintf(out, "running %d tests of %s … ", len(tests[pkg]), pkg)
		failed, err := runPackage(ctx, pkg, tests[pkg], results)
		if err == nil && strings.Contains(failed, detectorCrashed) {
			fmt.Fprint(out, "the race detector crashed, once more … ")
			failed, err = runPackage(ctx, pkg, tests[pkg], results)
		}
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "%.0f s\n%s", time.Since(begin).Seconds(), failed)
	}
	return results, ctx.Err()
}

// runPackage adds the outcomes of one package to results. It returns what the tests printed if one
// of them failed.
func runPackage(ctx context.Context, pkg string, names []string, results map[test]outcome) (string, error) {
	var tops []string
	for _, name := range names {
		top, _, _ := strings.Cut(name, "/")
		if !slices.Contains(tops, top) {
			tops = append(tops, top)
		}
	}
	// The race detector needs cgo; what the tests compile is without it, as everywhere else.
	cmd := exec.CommandContext(ctx, "go", "test", "-race", "-exec", "env CGO_ENABLED=0", "-vet=off", "-count=1", "-parallel", "6",
		"-tags", "e2e", "-timeout", "20m", "-json", "-run", "^("+strings.Join(tops, "|")+")$", ".")
	cmd.Dir = pkg // it may be of another module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run()
	var printed strings.Builder
	lines := bufio.NewScanner(&stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return "", fmt.Errorf("read the results of %s: %w: %s", pkg, err, lines.Text())
		}
		switch e.Action {
		case "pass", "fail", "skip":
			results[test{pkg, e.Test}] = outcome(e.Action)
		case "output", "build-output":
			printed.WriteString(e.Output)
		}
	}
	if runErr == nil {
		return "", lines.Err()
	}
	return printed.String() + stderr.String(), lines.Err()
}
