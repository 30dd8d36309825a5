package main

import (
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/sim"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

// The least of what a run must have gone through to count.
const (
	leastCalls   = 20
	leastCrashes = 1
	leastShare   = 0.05
	// progress is how often a line says how far it is.
	progress = 5 * time.Second
)

// tally adds up what the runs came to.
type tally struct {
	began, said         time.Time
	kinds               []trouble.Kind // the cloud's faults
	runs, rpcs, crashes int
	breaches            map[sim.Breach]int
	fired               map[trouble.Kind]int
	thin                int // runs with too little in them
}

func newTally() *tally {
	return &tally{began: time.Now(), said: time.Now(), breaches: map[sim.Breach]int{}, fired: map[trouble.Kind]int{}}
}

func (t *tally) add(p plan.Plan, o sim.Outcome) {
	t.kinds = o.Kinds
	t.runs++
	t.rpcs += o.RPCs
	t.crashes += o.Crashes
	for _, w := range o.Wrongs {
		t.breaches[w.Breach]++
	}
	for _, f := range o.Fired {
		t.fired[f.Kind]++
	}
	if thin(o) {
		t.thin++
		fmt.Printf("seed %d has only %d calls and %d crashes\n", p.Seed, o.RPCs, o.Crashes)
	}
	if time.Since(t.said) > progress {
		t.said = time.Now()
		fmt.Printf("%s after %.0fs\n", t.line(), time.Since(t.began).Seconds())
	}
}

// thin: too little happened.
func thin(o sim.Outcome) bool { return o.RPCs < leastCalls || o.Crashes < leastCrashes }

// faults counts those of the cloud, not the disturbances by the callers.
func (t *tally) faults() (n int) {
	for _, k := range t.kinds {
		n += t.fired[k]
	}
	return n
}

func (t *tally) line() string {
	text := fmt.Sprintf("runs=%d rpcs=%d faults=%d crashes=%d", t.runs, t.rpcs, t.faults(), t.crashes)
	for _, b := range sim.Breaches {
		text += fmt.Sprintf(" %s=%d", b, t.breaches[b])
	}
	return text
}

// end prints the last line, with the seed by which all can be repeated.
func (t *tally) end(seed uint64) {
	fmt.Printf("%s seed=%d in %.1fs\n", t.line(), seed, time.Since(t.began).Seconds())
}

// mix prints the share of each fault and says whether every one had enough.
func (t *tally) mix() bool {
	all, ok := t.faults(), t.thin == 0
	if t.thin > 0 {
		fmt.Printf("%d runs had fewer than %d calls or no crash\n", t.thin, leastCalls)
	}
	text := "shares:"
	for _, k := range t.kinds {
		share := float64(t.fired[k]) / float64(max(all, 1))
		text += fmt.Sprintf(" %s=%.1f%%", k, 100*share)
		if share < leastShare {
			ok = false
			text += "(!)"
		}
	}
	fmt.Println(text)
	fmt.Printf("disturbances: %s=%d %s=%d %s=%d\n", trouble.Cancelled, t.fired[trouble.Cancelled], trouble.Hurried, t.fired[trouble.Hurried], trouble.Twice, t.fired[trouble.Twice])
	if !ok {
		fmt.Printf("the mix is missed: each kind of fault needs %.0f%% of all, and each run %d calls and a crash\n", 100*leastShare, leastCalls)
	}
	return ok
}
