// Command bench measures what the project promises in numbers, prints a table and fails above the
// bars. Times are compared within one run, alternating, because machines are noisy: what counts is
// the ratio.
//
// Of a cloud that is emulated it measures the controller: requests, latency, memory, and how it gets on
// with the limits of the API. The loads of real time run the real program; those that are about an
// hour's budget live in simulated time, in this process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// options are the command line.
type options struct {
	bin, cloud, only string
	rounds           int
	quick            bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder with the two programs")
	flag.StringVar(&o.cloud, "cloud", "local", "what to measure: local (root), or the controller against an emulated cloud")
	flag.IntVar(&o.rounds, "rounds", 15, "local: how often a time is measured")
	flag.BoolVar(&o.quick, "quick", false, "emulated clouds: a part that takes a minute")
	flag.StringVar(&o.only, "only", "", "emulated clouds: one part: "+partNames())
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if o.cloud == "local" {
		err := run(ctx, o.bin, o.rounds, os.Stdout)
		stop()
		exit(err)
	}
	measure := benchCloud(ctx, o, os.Stdout)
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "bench",
		F: func(t *testing.T) {
			err := measure(t)
			stop()
			exit(err)
		},
	}}, nil, nil)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, bin string, rounds int, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "cloudblock-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, programs.Clean(dir)) }()
	pair, err := programs.Start(ctx, programs.Options{Bin: bin, Dir: dir, Flags: []string{"--log-level=warn"}})
	if err != nil {
		return err
	}
	defer pair.Stop()

	byHand := filepath.Join(dir, "by-hand")
	if err := os.MkdirAll(byHand, 0o700); err != nil {
		return err
	}
	table := &table{out: out}
	table.head()
	for _, measure := range []func() error{
		func() error { return sizes(table, bin) },
		func() error { return memory(table, pair) },
		func() error { return stage(ctx, table, pair, byHand, rounds) },
		func() error { return firstStage(ctx, table, pair, byHand, rounds) },
		func() error { return writes(ctx, table, pair, byHand) },
		func() error { return snapshots(ctx, table, bin, dir) },
	} {
		if err := measure(); err != nil {
			return err
		}
	}
	return table.verdict()
}

// cloudBench measures the controller against an emulated account of a cloud.
type cloudBench struct {
	target   target
	bin, dir string
	quick    bool
	// only is the part to measure; "": all.
	only     string
	table    *table
	progress io.Writer
	// played is how many loads there were.
	played int
}

// benchCloud is the bench of one cloud. Simulated time is to be had only inside of a test.
func benchCloud(ctx context.Context, o options, out io.Writer) func(t *testing.T) error {
	return func(t *testing.T) (err error) {
		kind, err := targetOf(o.cloud)
		if err != nil {
			return err
		}
		if o.only != "" && !slices.ContainsFunc(parts, func(p part) bool { return p.name == o.only }) {
			return fmt.Errorf("-only %s: known are %s", o.only, partNames())
		}
		dir, err := os.MkdirTemp("", "cloudblock-bench-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		b := &cloudBench{target: kind, bin: o.bin, dir: dir, quick: o.quick, only: o.only, table: &table{out: out}, progress: os.Stderr}
		return b.run(ctx, t)
	}
}

// A part is something that is measured by itself.
type part struct {
	name string
	// quick: it is measured with -quick, too.
	quick bool
	run   func(b *cloudBench, ctx context.Context, t *testing.T) error
}

// parts are what is measured, one after the other.
var parts = []part{
	{"footprint", true, func(b *cloudBench, ctx context.Context, _ *testing.T) error { return b.idle(ctx) }},
	{"limited", true, func(b *cloudBench, _ context.Context, t *testing.T) error {
		return b.limited(t, vendorTakes, 2*time.Second, 5*time.Second)
	}},
	{"storm", true, func(b *cloudBench, _ context.Context, t *testing.T) error { return b.storm(t) }},
	{"slow", true, func(b *cloudBench, _ context.Context, t *testing.T) error { return b.slow(t) }},
	{"waiting", false, func(b *cloudBench, ctx context.Context, _ *testing.T) error { return b.holding(ctx) }},
	{"rates", true, func(b *cloudBench, ctx context.Context, _ *testing.T) error { return b.allRates(ctx) }},
}

func partNames() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

func (b *cloudBench) run(ctx context.Context, t *testing.T) error {
	b.table.head()
	for _, p := range parts {
		if b.only == "" && b.quick && !p.quick || b.only != "" && b.only != p.name {
			continue
		}
		if err := p.run(b, ctx, t); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return b.table.verdict()
}

// table prints one line per figure and remembers the bars that were missed.
type table struct {
	out    io.Writer
	missed []string
	// prefix says of what the rows are, in the list of missed bars.
	prefix string
}

func (t *table) head() {
	fmt.Fprintf(t.out, "%-54s %14s   %s\n%s\n", "what", "measured", "bar", strings.Repeat("-", 84))
}

// row prints a figure; most is its bar, or 0 for none.
func (t *table) row(what string, measured, most float64, unit string) {
	bar := "-"
	if most > 0 {
		bar = fmt.Sprintf("<= %.4g %s", most, unit)
	}
	t.line(what, measured, unit, bar, most > 0 && measured > most)
}

// least prints a figure that should not be below its bar.
func (t *table) least(what string, measured, least float64, unit string) {
	t.line(what, measured, unit, fmt.Sprintf(">= %.4g %s", least, unit), measured < least)
}

// zero prints a count that should be 0.
func (t *table) zero(what string, measured int) {
	t.line(what, float64(measured), "", "0", measured > 0)
}

// miss remembers a bar that is printed otherwise.
func (t *table) miss(what string, missed bool) {
	if missed {
		t.missed = append(t.missed, what)
	}
}

func (t *table) line(what string, measured float64, unit, bar string, missed bool) {
	if missed {
		bar += "  MISSED"
	}
	t.miss(t.prefix+what, missed)
	fmt.Fprintf(t.out, "%-54s %14s   %s\n", what, fmt.Sprintf("%.4g %s", measured, unit), bar)
}

func (t *table) verdict() error {
	if len(t.missed) > 0 {
		return fmt.Errorf("bars missed: %s", strings.Join(t.missed, "; "))
	}
	fmt.Fprintln(t.out, "every figure with a bar is within it")
	return nil
}

func (t *table) section(title string) { fmt.Fprintf(t.out, "\n%s\n", title) }

// routes prints requests by route.
func (t *table) routes(c counted) {
	for _, line := range c.byRoute() {
		fmt.Fprintln(t.out, "  "+line)
	}
}
