package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/sim"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/world"
)

// mostActs bounds how often a run is made longer.
const mostActs = 3

// campaign plays all runs and reports whether nothing was wrong and the mix was right.
func campaign(t *testing.T, o options, with sim.Setup) bool {
	sum := newTally()
	for i := range o.runs {
		p, out, _ := o.play(i, with.Snapshots, func(p plan.Plan) (sim.Outcome, error) { return sim.Execute(t, p, with), nil })
		sum.add(p, out)
		if o.verbose {
			out.History.Print(os.Stdout)
		}
		if len(out.Wrongs) > 0 {
			report(t, o, p, out, with)
			sum.end(p.Seed)
			return false
		}
	}
	ok := sum.mix()
	sum.end(o.seed)
	return ok
}

// play plays a run. A run in which too little happened, because the volumes were soon deleted, is played with one more act.
func (o options) play(number int, snapshots bool, run func(plan.Plan) (sim.Outcome, error)) (plan.Plan, sim.Outcome, error) {
	for acts := 1; ; acts++ {
		p := plan.New(o.seed+uint64(number), o.controllers, snapshots, acts)
		out, err := run(p)
		if err != nil || !thin(out) || len(out.Wrongs) > 0 || acts == mostActs {
			return p, out, err
		}
	}
}

func breachesOf(p plan.Plan, out sim.Outcome) {
	fmt.Printf("seed %d with %d controllers goes wrong:\n", p.Seed, p.Controllers)
	for _, w := range out.Wrongs {
		fmt.Printf("  %s: %s\n", w.Breach, w.Text)
	}
}

// report prints the shortest history that still goes wrong.
func report(t *testing.T, o options, p plan.Plan, out sim.Outcome, with sim.Setup) {
	breachesOf(p, out)
	fmt.Printf("shrinking %d steps and %d faults ...\n", len(p.Steps), len(out.Fired))
	small, last := shrink(t, p, out, with, shrinkRuns)
	fmt.Printf("the shortest history found has %d steps and %d faults:\n", len(small.Steps), len(small.Faults))
	for _, f := range small.Faults {
		fmt.Printf("  fault %s\n", f)
	}
	last.History.Print(os.Stdout)
	fmt.Printf("again: make chaos CLOUD=%s RUNS=1 SEED=%d CONTROLLERS=%d\n", o.cloud, p.Seed, p.Controllers)
}

// campaignBinary plays all runs with the real program, several at once.
func campaignBinary(o options, played world.Scene) bool {
	b := &binaryCampaign{options: o, Scene: played, sum: newTally(), fine: true}
	var workers sync.WaitGroup
	for range min(o.parallel, o.runs) {
		workers.Go(b.work)
	}
	workers.Wait()
	if b.fine {
		b.fine = b.sum.mix()
	}
	b.sum.end(o.seed)
	return b.fine
}

// binaryCampaign is what the workers share.
type binaryCampaign struct {
	options

	world.Scene

	mu   sync.Mutex
	next int
	sum  *tally
	fine bool
}

// work plays one run after the other until there is none left, or one went wrong.
func (b *binaryCampaign) work() {
	for {
		b.mu.Lock()
		i, more := b.next, b.fine && b.next < b.runs
		b.next++
		b.mu.Unlock()
		if !more {
			return
		}
		var dir string
		p, out, err := b.play(i, b.Snapshots, func(p plan.Plan) (out sim.Outcome, err error) {
			_ = os.RemoveAll(dir)
			out, dir, err = sim.ExecuteBinary(p, b.Served, b.binary)
			return out, err
		})
		b.done(p, out, dir, err)
	}
}

func (b *binaryCampaign) done(p plan.Plan, out sim.Outcome, dir string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		b.fine = false
		return
	}
	b.sum.add(p, out)
	if b.verbose {
		out.History.Print(os.Stdout)
	}
	if len(out.Wrongs) == 0 {
		_ = os.RemoveAll(dir)
		return
	}
	b.fine = false
	breachesOf(p, out)
	out.History.Print(os.Stdout)
	fmt.Printf("the programs' logs are in %s; look for a shorter history in simulated time: make chaos CLOUD=%s RUNS=1 SEED=%d CONTROLLERS=%d\n",
		filepath.Join(dir, "*.log"), b.cloud, p.Seed, p.Controllers)
}
