// Command run is `make e2e-cluster`: the project's own story in a running cluster, the same story
// while the driver's pods are deleted, the commands of the documents, the chart with random values, an
// installation by the documents alone, the scenarios of the cloud's vendor, an upgrade from an older build, and the
// upstream External Storage suite, on a cloud with controllers also while these are deleted.
// It starts a cluster when none runs, and prints a table of what passed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/upstream"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-cluster:", err)
		os.Exit(1)
	}
}

// parts are what can be run on a cloud, in this order. Of the controllers that a cloud has beside its
// nodes there are two, and in a patrol one of them is deleted every 20 s.
var parts = map[string][]string{
	"local":        {"first", "story", "crowd", "scoring", "populator", "health", "limits", "changed-blocks", "proved-restore", "commands", "charts", "token", "sabotage", "lost", "new-node", "install", "upgrade", "upstream", "nothing-left"},
	"digitalocean": before("upgrade", "migration", before("report", "proved-restore", withControllers)),
	"linode":       before("upgrade", "vendor", before("populator", "crowd", withControllers)),
	"yandex":       before("populator", "crowd", before("install", "relocate", before("report", "proved-restore", withControllers))),
}

// withControllers has no crowd, which needs 50 volumes on a machine.
var withControllers = []string{
	"first", "story", "populator", "health", "limits", "report", "commands", "charts", "sabotage", "patrol", "lost", "new-node", "install", "upgrade", "upstream", "upstream-patrol", "nothing-left",
}

// before inserts a part before another.
func before(other, part string, all []string) []string {
	return slices.Insert(slices.Clone(all), slices.Index(all, other), part)
}

// tests are the parts that are tests of our own.
var tests = map[string]string{
	"first": "TestFirst", "story": "TestStory", "crowd": "TestCrowd", "token": "TestStolenToken", "sabotage": "TestSabotage", "patrol": "TestPatrol", "nothing-left": "TestNothingLeft",
	"commands": "TestCommands", "lost": "TestLost", "new-node": "TestNewNode", "install": "TestInstall", "migration": "TestMigration", "upgrade": "TestUpgrade",
	"scoring": "TestScoring", "populator": "TestPopulator", "health": "TestHealth", "limits": "TestLimits", "report": "TestReport", "vendor": "TestVendor", "relocate": "TestRelocate",
	"changed-blocks": "TestChangedBlocks", "proved-restore": "TestProvedRestore",
}

// controllers selects the pods of the controller's Deployment.
const controllers = "app.kubernetes.io/name=cloudblock-controller"

// options are the flags.
type options struct {
	cloud, focus, old, reports string
	only                       []string
	wide                       bool
	processes                  int
}

func parse(args []string) (options, error) {
	var o options
	var only string
	fs := flag.NewFlagSet("e2e-cluster", flag.ContinueOnError)
	fs.StringVar(&o.cloud, "cloud", "local", "the backend that the cluster's driver uses")
	fs.StringVar(&only, "only", "", "which `parts` to run, with commas between them (default: all)")
	fs.StringVar(&o.focus, "focus", "", "a regular expression: only these specs of the upstream suite")
	fs.StringVar(&o.old, "old", "", "the `commit` or tag that the part upgrade begins with (default: the newest tag, or else this build)")
	fs.BoolVar(&o.wide, "wide", false, "run the upstream suite's slow and serial specs, too")
	fs.IntVar(&o.processes, "procs", 6, "how many specs of the upstream suite run at a time")
	fs.StringVar(&o.reports, "reports", "", "`folder` for reports and logs (default: below the cluster's cache)")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	all, known := parts[o.cloud]
	if !known {
		return o, fmt.Errorf("-cloud %s: there is no such cloud, only %s", o.cloud, strings.Join(slices.Sorted(maps.Keys(parts)), ", "))
	}
	if only == "" {
		o.only = all
		return o, nil
	}
	for part := range strings.SplitSeq(only, ",") {
		if !slices.Contains(all, part) {
			return o, fmt.Errorf("-only %s: there is no such part, only %s", part, strings.Join(all, ", "))
		}
		o.only = append(o.only, part)
	}
	return o, nil
}

// line is one line of the table at the end.
type line struct {
	part                    string
	passed, failed, skipped int
	took                    time.Duration
	err                     error
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	client, err := kube.FromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	if o.reports == "" {
		o.reports = filepath.Join(filepath.Dir(client.Kubeconfig), "reports")
	}
	if o.reports, err = filepath.Abs(o.reports); err != nil {
		return err
	}
	if err := os.MkdirAll(o.reports, 0o755); err != nil {
		return err
	}
	if err := ready(ctx, client, o, out); err != nil {
		return err
	}
	var lines []line
	for _, part := range parts[o.cloud] {
		if !slices.Contains(o.only, part) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(out, "\n== %s\n", part)
		begin := time.Now()
		l := one(ctx, client, o, part, out)
		l.part, l.took = part, time.Since(begin)
		lines = append(lines, l)
	}
	return errors.Join(report(lines, out), ctx.Err())
}

// ready looks whether the cluster answers, and starts one if it does not.
func ready(ctx context.Context, client kube.Client, o options, out io.Writer) error {
	if _, err := client.Run(ctx, "get", "--raw", "/readyz", "--request-timeout=10s"); err == nil {
		return nil
	}
	fmt.Fprintln(out, "no cluster answers; starting one")
	cmd := exec.CommandContext(ctx, "go", "run", "./test/run/cluster", "up", "-cloud", o.cloud)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start a cluster: %w", err)
	}
	return nil
}

// one runs one part.
func one(ctx context.Context, client kube.Client, o options, part string, out io.Writer) line {
	if part == "upgrade" {
		if err := oldImages(ctx, o, out); err != nil {
			return line{err: err}
		}
	}
	if test, ok := tests[part]; ok {
		return goTest(ourTest(ctx, test, o), out)
	}
	if part == "charts" {
		return goTest(chartsTest(ctx, client), out)
	}
	if part == "upstream-patrol" {
		o.reports = filepath.Join(o.reports, part)
		defer patrol(ctx, client, o.cloud, out)()
	}
	grows, err := kube.MountedExt4Grows()
	if err != nil {
		return line{err: err}
	}
	result, err := upstream.Run(ctx, upstream.Options{
		Cloud: o.cloud,
		Bin:   filepath.Dir(client.Kubectl), Kubectl: client.Kubectl, Kubeconfig: client.Kubeconfig,
		Driver: "test/run/e2e/cluster/external-" + o.cloud + ".yaml", Focus: o.focus, Wide: o.wide,
		GrowsMountedExt4: grows, Processes: o.processes, Reports: o.reports,
	}, out)
	l := line{passed: len(result.Passed), failed: len(result.Failed) + len(result.Unexplained), err: err}
	for _, specs := range result.Skipped {
		l.skipped += len(specs)
	}
	if err == nil && !result.OK() {
		l.err = errors.New("a spec failed, or was skipped without a known reason")
	}
	return l
}

// oldImages gives the nodes the images of the build that is upgraded.
func oldImages(ctx context.Context, o options, out io.Writer) error {
	args := []string{"run", "./test/run/cluster", "old"}
	if o.old != "" {
		args = append(args, "-ref", o.old)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("images of the old build: %w", err)
	}
	return nil
}

// patrol deletes one of the controllers every 20 s until the returned function is called.
func patrol(ctx context.Context, client kube.Client, cloud string, out io.Writer) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	client = client.In("cloudblock-" + cloud)
	client.Log = func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	deleted := make(chan int)
	go func() { deleted <- client.DeleteEvery(ctx, controllers, 20*time.Second) }()
	return func() {
		stop()
		fmt.Fprintf(out, "%d pods of the controller were deleted meanwhile\n", <-deleted)
	}
}

// report prints the table and the last line.
func report(lines []line, out io.Writer) error {
	fmt.Fprintf(out, "\n%-14s %7s %7s %8s %8s\n", "", "passed", "failed", "skipped", "minutes")
	var passed, failed int
	var errs []error
	for _, l := range lines {
		if l.err != nil && l.failed == 0 {
			l.failed = 1
		}
		fmt.Fprintf(out, "%-14s %7d %7d %8d %8.1f\n", l.part, l.passed, l.failed, l.skipped, l.took.Minutes())
		passed += l.passed
		failed += l.failed
		if l.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.part, l.err))
		}
	}
	fmt.Fprintf(out, "\n%d passed, %d failed\n", passed, failed)
	return errors.Join(errs...)
}
