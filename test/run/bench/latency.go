package main

import (
	"math"
	"slices"
	"time"
)

// delay is how long a call took from the moment at which the cloud took on its last operation, and how
// long that operation took. What came before, such as the machine's turn, does not count.
type delay struct{ call, operation time.Duration }

// over is the call's time over the operation's own.
func (d delay) over() float64 { return float64(d.call) / float64(d.operation) }

// late is how long after the operation's end the call was answered, in milliseconds.
func (d delay) late() float64 { return ms(d.call - d.operation) }

// milliseconds is how long the operation took.
func (d delay) milliseconds() float64 { return ms(d.operation) }

// delays pairs the calls of a kind with their last operations.
func delays(calls []call, changes []change, what ...string) []delay {
	type key struct{ what, volume string }
	last := map[key]change{}
	for _, c := range changes {
		last[key{c.what, c.volume}] = c
	}
	var all []delay
	for _, c := range calls {
		if op, known := last[key{c.what, c.volume}]; known && slices.Contains(what, c.what) {
			all = append(all, delay{call: c.ended.Sub(op.accepted), operation: op.finished.Sub(op.accepted)})
		}
	}
	return all
}

// percentile returns the smallest value that so many percent of all are not above.
func percentile(all []delay, percent float64, of func(delay) float64) float64 {
	if len(all) == 0 {
		return math.Inf(1) // nothing was measured: no bar is met
	}
	values := make([]float64, 0, len(all))
	for _, d := range all {
		values = append(values, of(d))
	}
	slices.Sort(values)
	return values[int(math.Ceil(percent/100*float64(len(values))))-1]
}
