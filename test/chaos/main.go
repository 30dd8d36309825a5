package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The least of what a run must have gone through to count.
const (
	leastCalls   = 20
	leastCrashes = 1
	leastShare   = 0.05
	// shrinkRuns bounds the search for a short history.
	shrinkRuns = 400
	// progress is how often a line says how far it is.
	progress = 5 * time.Second
)

// options are the command line.
type options struct {
	cloud       string
	runs        int
	seed        uint64
	controllers int
	verbose     bool
}

func main() {
	testing.Init() // simulated time is to be had only inside of a test
	var o options
	flag.StringVar(&o.cloud, "cloud", "memory", "the cloud: "+strings.Join(slices.Sorted(maps.Keys(worlds)), ", "))
	flag.IntVar(&o.runs, "runs", 100, "how many runs")
	flag.Uint64Var(&o.seed, "seed", 1, "the seed of the first run; each later one has the next number")
	flag.IntVar(&o.controllers, "controllers", 1, "how many controllers share the cloud: 1 or 2")
	flag.BoolVar(&o.verbose, "history", false, "print the history of every run")
	flag.Parse()
	if o.controllers < 1 || o.controllers > 2 || o.runs < 1 {
		fmt.Fprintln(os.Stderr, "chaos: -controllers is 1 or 2, -runs at least 1")
		os.Exit(2)
	}
	world, err := worldOf(o.cloud)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	code := 1
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "chaos",
		F: func(t *testing.T) {
			if campaign(t, o, setup{world: world}) {
				code = 0
			}
			os.Exit(code)
		},
	}}, nil, nil)
}

// tally adds up what the runs came to.
type tally struct {
	runs, rpcs, crashes int
	breaches            map[Breach]int
	kinds               map[Kind]int
	thin                int // runs with too little in them
}

func (t *tally) add(o outcome) {
	t.runs++
	t.rpcs += o.rpcs
	t.crashes += o.crashes
	for _, w := range o.wrongs {
		t.breaches[w.Breach]++
	}
	for _, f := range o.fired {
		t.kinds[f.Kind]++
	}
	if thin(o) {
		t.thin++
	}
}

// thin says whether a run had too little in it to count.
func thin(o outcome) bool { return o.rpcs < leastCalls || o.crashes < leastCrashes }

// faults counts those of the cloud, not the disturbances by the callers.
func (t *tally) faults(kinds []Kind) (n int) {
	for _, k := range kinds {
		n += t.kinds[k]
	}
	return n
}

func (t *tally) line(kinds []Kind) string {
	text := fmt.Sprintf("runs=%d rpcs=%d faults=%d crashes=%d", t.runs, t.rpcs, t.faults(kinds), t.crashes)
	for _, b := range breaches {
		text += fmt.Sprintf(" %s=%d", b, t.breaches[b])
	}
	return text
}

// campaign plays all runs and reports whether nothing was wrong and the mix was right.
func campaign(t *testing.T, o options, with setup) bool {
	sum := &tally{breaches: map[Breach]int{}, kinds: map[Kind]int{}}
	kinds := kindsOf(t, with)
	began, said := time.Now(), time.Now()
	for i := range o.runs {
		plan := NewPlan(o.seed+uint64(i), o.controllers)
		out := execute(t, plan, with)
		sum.add(out)
		if o.verbose {
			out.history.print(os.Stdout)
		}
		if len(out.wrongs) > 0 {
			report(t, o, plan, out, with)
			fmt.Printf("%s seed=%d\n", sum.line(kinds), plan.Seed)
			return false
		}
		if thin(out) {
			fmt.Printf("seed %d has only %d calls and %d crashes\n", plan.Seed, out.rpcs, out.crashes)
		}
		if time.Since(said) > progress {
			said = time.Now()
			fmt.Printf("%s after %.0fs\n", sum.line(kinds), time.Since(began).Seconds())
		}
	}
	ok := mix(sum, kinds)
	fmt.Printf("%s seed=%d in %.1fs\n", sum.line(kinds), o.seed, time.Since(began).Seconds())
	return ok
}

// kindsOf asks a world, which has to be made in simulated time, which faults it has.
func kindsOf(t *testing.T, with setup) (kinds []Kind) {
	empty := Plan{Controllers: 1, Faults: []Fault{}}
	with.world = func(inner maker) maker {
		return func(in *injector, log func(string, ...any), changed func()) (World, error) {
			w, err := inner(in, log, changed)
			if err == nil {
				kinds = w.Kinds()
			}
			return w, err
		}
	}(with.world)
	execute(t, empty, with)
	return kinds
}

// mix prints the share of each fault and says whether every one had enough.
func mix(sum *tally, kinds []Kind) bool {
	all, ok := sum.faults(kinds), sum.thin == 0
	if sum.thin > 0 {
		fmt.Printf("%d runs had fewer than %d calls or no crash\n", sum.thin, leastCalls)
	}
	text := "shares:"
	for _, k := range kinds {
		share := float64(sum.kinds[k]) / float64(max(all, 1))
		text += fmt.Sprintf(" %s=%.1f%%", k, 100*share)
		if share < leastShare {
			ok = false
			text += "(!)"
		}
	}
	fmt.Println(text)
	fmt.Printf("disturbances: %s=%d %s=%d %s=%d\n", Cancelled, sum.kinds[Cancelled], Hurried, sum.kinds[Hurried], Twice, sum.kinds[Twice])
	if !ok {
		fmt.Printf("the mix is missed: each kind of fault needs %.0f%% of all\n", 100*leastShare)
	}
	return ok
}

// report prints the shortest history that still goes wrong.
func report(t *testing.T, o options, plan Plan, out outcome, with setup) {
	fmt.Printf("seed %d with %d controllers goes wrong:\n", plan.Seed, plan.Controllers)
	for _, w := range out.wrongs {
		fmt.Printf("  %s: %s\n", w.Breach, w.Text)
	}
	fmt.Printf("shrinking %d steps and %d faults ...\n", len(plan.Steps), len(out.fired))
	small, last := shrink(t, plan, out, with, shrinkRuns)
	fmt.Printf("the shortest history found has %d steps and %d faults:\n", len(small.Steps), len(small.Faults))
	for _, f := range small.Faults {
		fmt.Printf("  fault %s\n", f)
	}
	last.history.print(os.Stdout)
	fmt.Printf("again: make chaos CLOUD=%s RUNS=1 SEED=%d CONTROLLERS=%d\n", o.cloud, plan.Seed, plan.Controllers)
}
