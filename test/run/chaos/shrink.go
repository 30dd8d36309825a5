package main

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/sim"
)

// shrinkRuns bounds the search for a short history.
const shrinkRuns = 400

// shrink leaves out steps and faults for as long as a plan still ends in the same kind of breach, and
// returns the smallest it found with its outcome. It plays at most so many plans.
func shrink(t *testing.T, p plan.Plan, first sim.Outcome, with sim.Setup, most int) (plan.Plan, sim.Outcome) {
	want := first.Wrongs[0].Breach
	best, result := p.Without(none, none), first
	best.Faults = first.Fired
	played := 0
	try := func(smaller plan.Plan) bool {
		if played++; played > most {
			return false
		}
		o := sim.Execute(t, smaller, with)
		for _, w := range o.Wrongs {
			if w.Breach == want {
				best, result = smaller, o
				return true
			}
		}
		return false
	}
	for chunk := max(len(best.Steps), len(best.Faults)); chunk > 0 && played < most; {
		shrunk := false
		for at := 0; at < max(len(best.Steps), len(best.Faults)); at += chunk {
			drop := func(i int) bool { return i >= at && i < at+chunk }
			if at < len(best.Faults) && try(best.Without(none, drop)) || at < len(best.Steps) && try(best.Without(drop, none)) {
				shrunk = true
				at -= chunk // what came after is here now
			}
		}
		if !shrunk || chunk > 1 {
			chunk /= 2
		}
	}
	return best, result
}

func none(int) bool { return false }
