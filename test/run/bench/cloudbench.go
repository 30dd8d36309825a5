package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

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

// allRates plays all loads.
func (b *cloudBench) allRates(ctx context.Context) error {
	quick := rate{takes: vendorTakes, atOnce: 16, machines: machines}
	crowded, uneven := quick, rate{takes: time.Second, more: 4 * time.Second, atOnce: 16, machines: machines}
	crowded.machines = 4
	two := rate{takes: 2 * time.Second, atOnce: 16, machines: machines, mostReads: 150}
	five := two
	five.takes = 5 * time.Second
	all := func(r rate) rate {
		r.atOnce = volumes
		if b.target.operations == 0 { // else no more than these share a look, however many wait
			r.mostReads = 60
		}
		return r
	}
	rounds := [][]rate{{quick}, {crowded}, {two, five, all(two), all(five), uneven}}
	if b.quick {
		rounds = [][]rate{{quick}, {two, all(two)}}
	}
	if b.target.bars != nil {
		rounds = b.target.bars.rounds(rounds, b.quick)
	}
	for _, round := range rounds {
		if err := b.rates(ctx, round...); err != nil {
			return err
		}
	}
	return nil
}

// rounds puts the bars of design section 6 on the loads, and adds those that only it asks for.
func (m bars6) rounds(rounds [][]rate, quick bool) [][]rate {
	for _, round := range rounds {
		for i := range round {
			round[i].mostReads = 0
			if round[i].takes+round[i].more >= time.Second && round[i].atOnce < volumes {
				round[i].mostReads = int(m.each * volumes)
				if round[i].more > 0 && m.scattered > 0 {
					round[i].mostReads = int(m.scattered * volumes)
				}
			}
		}
	}
	foreign := rate{takes: 2 * time.Second, atOnce: 16, machines: machines, foreign: 600, mostReads: int(m.foreign * volumes)}
	alone := rate{takes: 4 * time.Second, atOnce: 1, machines: 1, alone: true, mostReads: int(m.alone)}
	more := []rate{foreign, alone}
	if !quick {
		slow := foreign
		slow.takes = 5 * time.Second
		more = append(more, slow)
	}
	return append(rounds, more)
}

// slow measures, in simulated time, an API whose every GET takes long: all calls end well, and no more requests are
// made than of a fast one.
func (b *cloudBench) slow(t *testing.T) error {
	if b.target.bars == nil {
		return nil
	}
	b.table.section(fmt.Sprintf("every GET takes long, %d volumes, 16 at a time, operations of 2 s (in simulated time, in one process)", volumes))
	fast := 0
	for _, gets := range []time.Duration{0, 2500 * time.Millisecond, 10 * time.Second} {
		run, err := b.simulate(t, limit{takes: 2 * time.Second, atOnce: 16, told: endless, gets: gets})
		if err != nil {
			return err
		}
		if gets == 0 {
			fast = run.all()
		}
		name := fmt.Sprintf("GETs of %s: ", gets)
		b.table.zero(name+"calls that failed", len(run.failed))
		b.table.row(name+"requests", float64(run.all()), 1.05*float64(fast), "") // which operations share a list is chance
	}
	return nil
}

// idle measures what the programs occupy: on the disk, and in memory when there is nothing to do.
func (b *cloudBench) idle(ctx context.Context) (err error) {
	if err := sizes(b.table, b.bin); err != nil {
		return err
	}
	acc, pair, err := b.start(ctx, filepath.Join(b.dir, "idle"), setting{machines: machines}, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, acc.Close()) }()
	defer pair.Stop()
	rss, err := mostResident(ctx, pair.Controller, time.Second)
	if err != nil {
		return err
	}
	b.table.row("controller program, resident when idle", rss, bars["controller"].idle, "MiB")
	return nil
}
