package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
)

const (
	machines = 10
	// mostRefused is how much of the requests a limited cloud may refuse, in percent.
	mostRefused = 1
	// spare is what a cut budget has beyond what is needed.
	spare = 1.1
	// instant is a short time, in which a load is not even.
	instant = 10 * time.Second
)

// limit is a load under the limits of an API.
type limit struct {
	what   string
	takes  time.Duration
	atOnce int
	// cloud are the account's limits, told those that the controller is told of; nil: the documented ones.
	cloud, told []budget.Window
	// gets is how long the answer to each GET takes.
	gets time.Duration
}

// limitedRun is what came of it.
type limitedRun struct {
	measured
	// waits is how long requests waited for the budget on average, by priority.
	waits map[string]time.Duration
}

// limited plays loads under limits, in simulated time.
func (b *cloudBench) limited(t *testing.T, durations ...time.Duration) error {
	b.table.section(fmt.Sprintf("limited API, %d volumes, %d machines (in simulated time, in one process); bars: no call fails, 429 <= %d %%", volumes, machines, mostRefused))
	fmt.Fprintf(b.table.out, "  %-60s %8s %9s %5s %6s %6s   waited for budget: detach and look / attach / other write\n",
		"operations, at once, limits", "took", "requests", "429", "%", "failed")
	for _, takes := range durations {
		free, err := b.simulate(t, limit{takes: takes, atOnce: 16, told: endless})
		if err != nil {
			return err
		}
		b.table.limited(limit{what: "none", takes: takes, atOnce: 16}, free)
		for _, l := range b.target.bounded(free) {
			l.takes = takes
			run, err := b.simulate(t, l)
			if err != nil {
				return err
			}
			b.table.limited(l, run)
		}
	}
	return nil
}

// bounded are the loads under limits, after one without.
func (t target) bounded(free limitedRun) []limit {
	if len(t.limits) == 0 { // an account has no others than of what it runs at once
		return []limit{{what: t.bounds(), atOnce: 100}}
	}
	need := spare * float64(free.all())
	// Of the whole, and at each moment.
	hour := []budget.Window{{Calls: int(math.Ceil(need)), Per: time.Hour, FromHeaders: true}}
	steady := []budget.Window{{Calls: int(math.Ceil(need / free.took.Seconds() * instant.Seconds())), Per: instant, FromHeaders: true}}
	return []limit{
		{what: fmt.Sprintf("need + 10 %%: %s, learnt", text(hour)), atOnce: 16, cloud: hour, told: endless},
		{what: fmt.Sprintf("need + 10 %%: %s", text(steady)), atOnce: 16, cloud: steady, told: steady},
		{what: "the real ones: " + t.bounds(), atOnce: 16, cloud: t.limits},
		{what: "the real ones: " + t.bounds(), atOnce: 100, cloud: t.limits},
	}
}

// bounds are the real limits in words.
func (t target) bounds() string {
	if t.operations > 0 {
		return fmt.Sprintf("%d operations at once", t.operations)
	}
	return text(t.limits)
}

// endless is what a controller is told that has to find out by itself.
var endless = []budget.Window{{Calls: 1e8, Per: time.Hour, FromHeaders: true}}

func text(limits []budget.Window) (s string) {
	for i, l := range limits {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%d in %s", l.Calls, plain(l.Per))
	}
	return s
}

// limited prints a run in one line. Whoever waits for a detach waits for a pod's move to another machine.
func (t *table) limited(l limit, run limitedRun) {
	w := run.waits
	fmt.Fprintf(t.out, "  %-60s %8s %9d %5d %6.2f %6d   %s / %s / %s\n",
		fmt.Sprintf("%s, %d, %s", l.takes, l.atOnce, l.what), run.took.Round(time.Second), run.all(), run.refused, run.refusedPart(), len(run.failed),
		short(w["detach"]), short(w["attach"]), short(w["write"]))
	name := fmt.Sprintf("limits %s, operations of %s, %d at a time: ", l.what, l.takes, l.atOnce)
	for _, err := range run.failed[:min(3, len(run.failed))] {
		fmt.Fprintln(t.out, "    "+err.Error())
	}
	t.miss(name+"calls failed", len(run.failed) > 0)
	t.miss(name+"refused requests", run.refusedPart() > mostRefused)
}

// plain is a duration without its zeros.
func plain(d time.Duration) string {
	return strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
