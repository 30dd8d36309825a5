package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// allRates plays all loads.
func (b *cloudBench) allRates(ctx context.Context) error {
	quick := rate{takes: vendorTakes, atOnce: 16, machines: machines}
	crowded, uneven := quick, rate{takes: time.Second, more: 4 * time.Second, atOnce: 16, machines: machines}
	crowded.machines = 4
	two := rate{takes: 2 * time.Second, atOnce: 16, machines: machines}
	five := two
	five.takes = 5 * time.Second
	all := func(r rate) rate {
		r.atOnce = volumes
		return r
	}
	rounds := [][]rate{{quick}, {crowded}, {two, five, all(two), all(five), uneven}}
	if b.quick {
		rounds = [][]rate{{quick}, {two, all(two)}}
	}
	for _, round := range b.target.bars.rounds(rounds, b.quick) {
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

const (
	volumes = 100
	// unlimited is what the controller is told of an account without limits.
	unlimited = "--api-limits=100000000/1h"
)

// rate is one load of the real controller program.
type rate struct {
	// An operation takes so long, by chance up to more longer.
	takes, more      time.Duration
	atOnce, machines int
	// mostReads is the bar, or 0 for none.
	mostReads int
	// alone: one volume instead of a hundred. foreign is how many volumes there are of others.
	alone   bool
	foreign int
}

// volumes is how many live.
func (r rate) volumes() int {
	if r.alone {
		return 1
	}
	return volumes
}

const (
	// The bars of design section 6: a call's time over its operation's own, and what counts instead where it is more.
	maxMedian, maxSlowest         = 1.15, 1.25
	maxMedianLate, maxSlowestLate = 500 * time.Millisecond, 1200 * time.Millisecond
)

// bars are those of design section 6. An operation of varying length counts as its shortest.
func (r rate) bars() (median, slowest float64) {
	over := func(late time.Duration) float64 { return 1 + float64(late)/float64(r.takes) }
	return max(maxMedian, over(maxMedianLate)), max(maxSlowest, over(maxSlowestLate))
}

func (r rate) lasts() string {
	if r.more > 0 {
		return fmt.Sprintf("%s-%s", r.takes, r.takes+r.more)
	}
	return r.takes.String()
}

// measured is what came of a load.
type measured struct {
	counted
	calls   []call
	changes []change
	failed  []error
	took    time.Duration
	// resident is what the program occupied at the end, in MiB.
	resident float64
}

// rates plays several loads at the same time, each with an account and a program of its own: they wait
// most of the time.
func (b *cloudBench) rates(ctx context.Context, all ...rate) error {
	loads, results, failures := make([]*load, len(all)), make([]measured, len(all)), make([]error, len(all))
	var group sync.WaitGroup
	for i, r := range all {
		loads[i] = &load{volumes: r.volumes(), atOnce: r.atOnce}
		group.Go(func() {
			results[i], failures[i] = b.play(ctx, r, loads[i], filepath.Join(b.dir, fmt.Sprintf("rate-%d", b.played+i)))
		})
	}
	b.follow(all, loads, group.Wait)
	b.played += len(all)
	if err := errors.Join(ctx.Err(), errors.Join(failures...)); err != nil {
		return err // what an interrupted load says is nothing
	}
	for i, r := range all {
		b.table.rate(r, results[i])
		if most := b.target.operations; most > 0 {
			b.table.row(fmt.Sprintf("%d at a time, %s: operations that ran at once", r.atOnce, r.lasts()), float64(results[i].atOnce), float64(most), "")
		}
		if r.takes == vendorTakes {
			b.table.beside(b.target.vendor, r, results[i])
		}
	}
	return nil
}

// follow says how far the loads are until wait returns.
func (b *cloudBench) follow(all []rate, loads []*load, wait func()) {
	began, done := time.Now(), make(chan struct{})
	go func() { wait(); close(done) }()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		fmt.Fprintf(b.progress, "after %3.0f s:", time.Since(began).Seconds())
		for i, r := range all {
			fmt.Fprintf(b.progress, "  %s by %d: %d of %d", r.lasts(), r.atOnce, loads[i].lives.Load(), r.volumes())
		}
		fmt.Fprintln(b.progress)
	}
}

// play lets the volumes of a load live against an account of its own.
func (b *cloudBench) play(ctx context.Context, r rate, l *load, dir string) (m measured, err error) {
	acc, pair, err := b.start(ctx, dir, setting{machines: r.machines, takes: r.takes, more: r.more, made: r.takes, foreign: r.foreign}, unlimited)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, acc.Close()) }()
	defer pair.Stop()
	acc.ResetStats() // what the program asked at its start is not the load's
	l.client, l.machines, l.usable = csi.NewControllerClient(pair.Controller.Conn), acc.Machines(), usable(acc)
	took := l.run(ctx)
	m = measured{counted: countedOf(acc), calls: l.calls, changes: changesOf(acc), failed: l.failed, took: took}
	if m.resident, err = residentMiB(pair.Controller.PID()); err != nil {
		return m, err
	}
	return m, sound(acc, l.failed)
}

// start starts an account and the controller program for it. Without a flag the program knows the limits
// that the cloud documents.
func (b *cloudBench) start(ctx context.Context, dir string, s setting, limits string) (accounts.Account, *programs.Pair, error) {
	acc, err := s.start(ctx, b.target)
	if err != nil {
		return nil, nil, err
	}
	opts := programs.Options{Bin: b.bin, Dir: dir, Cloud: acc, Flags: []string{"--log-level=warn"}}
	if limits != "" {
		opts.Flags = append(opts.Flags, limits)
	}
	pair, err := programs.StartController(ctx, opts)
	if err != nil {
		return nil, nil, errors.Join(err, acc.Close())
	}
	return acc, pair, nil
}

// sound says what is wrong with an account after a load, besides its numbers.
func sound(acc accounts.Account, failed []error) error {
	var wrong []error
	for _, trouble := range accounts.Wrong(acc) {
		wrong = append(wrong, errors.New(trouble))
	}
	if left := left(acc); len(failed) == 0 && len(left) > 0 {
		wrong = append(wrong, fmt.Errorf("left behind: %v", left))
	}
	return errors.Join(wrong...)
}

// rate prints the figures of a load.
func (t *table) rate(r rate, m measured) {
	name := fmt.Sprintf("operations of %s, %d at a time, %d machines", r.lasts(), r.atOnce, r.machines)
	if r.foreign > 0 {
		name += fmt.Sprintf(", %d foreign volumes", r.foreign)
	}
	t.section(fmt.Sprintf("%s: %d volumes in %.0f s", name, r.volumes(), m.took.Seconds()))
	t.prefix = name + ": "
	defer func() { t.prefix = "" }()
	t.routes(m.counted)
	t.zero("calls that failed", len(m.failed))
	for _, err := range m.failed[:min(3, len(m.failed))] {
		fmt.Fprintln(t.out, "    "+err.Error())
	}
	t.zero("requests that were too many for the API", m.refused)
	t.row("requests that change something", float64(m.writes), float64(4*r.volumes()), "")
	t.row("requests that change nothing", float64(m.reads), float64(r.mostReads), "")
	t.row("requests for each volume", float64(m.all())/float64(r.volumes()), 0, "")
	var answered []string // as soon as the operation ends, which is at once
	for _, what := range []string{callCreate, callPublish, callUnpublish, callDelete} {
		all := delays(m.calls, m.changes, what)
		if percentile(all, 50, delay.milliseconds) < ms(r.takes)/2 {
			answered = append(answered, what)
			continue
		}
		median, slowest := r.bars()
		if r.alone || r.takes < time.Second {
			median = slowest // of one call, and of very quick operations, there is no other
		}
		t.row(what+" over the operation's own time, p50", percentile(all, 50, delay.over), median, "x")
		t.row(what+" over the operation's own time, p99", percentile(all, 99, delay.over), slowest, "x")
	}
	if len(answered) > 0 {
		last := delays(m.calls, m.changes, answered...)
		t.row(strings.Join(answered, " and ")+" after the operation's end, p99", percentile(last, 99, delay.late), ms(maxSlowestLate), "ms")
	}
	t.row("controller program, resident at the end", m.resident, 0, "MiB")
}

// vendorTakes is how long operations took where the vendor's driver was measured.
const vendorTakes = 150 * time.Millisecond

// beside prints what is given of the vendor's driver.
func (t *table) beside(v given, r rate, m measured) {
	over := percentile(delays(m.calls, m.changes, callPublish), 50, delay.over)
	fmt.Fprintf(t.out, "  reads + writes for each volume: %.1f + %.1f here, %s %s (%s with operations of 1 to 5 s; with the real limits %s)\n",
		float64(m.reads)/volumes, float64(m.writes)/volumes, v.driver, v.quick, v.slow, v.limited)
	fmt.Fprintf(t.out, "  publish over the operation's own %s, p50: %.2g here, %s %.2g; %s\n", r.takes, over, v.driver, v.attach, v.collisions)
}
