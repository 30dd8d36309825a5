package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
)

func TestEachCloudStaysWithinTheLimitsOfItsAPI(t *testing.T) {
	for _, target := range targets {
		t.Run(target.name, func(t *testing.T) {
			var out bytes.Buffer
			b := &cloudBench{target: target, table: &table{out: &out}}
			if err := b.limited(t, 2*time.Second); err != nil {
				t.Error(err)
			}
			if err := b.storm(t); err != nil {
				t.Error(err)
			}
			if err := b.table.verdict(); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}

func TestABudgetThatIsTooSmallIsSeen(t *testing.T) {
	var out bytes.Buffer
	b := &cloudBench{target: digitalOceanTarget, table: &table{out: &out}}
	l := limit{takes: time.Second, atOnce: 16, cloud: []budget.Window{{Calls: 2 * volumes, Per: time.Hour, FromHeaders: true}}}
	run, err := b.simulate(t, l)
	if err != nil {
		t.Fatal(err)
	}
	b.table.limited(l, run)
	if err := b.table.verdict(); err == nil || !strings.Contains(err.Error(), "calls failed") {
		t.Errorf("half of the budget: %v, want calls that failed\n%s", err, &out)
	}
}

func TestOnlyTheTimeSinceTheLastOperationCounts(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	calls := []call{
		{what: callPublish, volume: "a", ended: at(13)},
		{what: callPublish, volume: "b", ended: at(44)},
		{what: callUnpublish, volume: "a", ended: at(99)},
		{what: callPublish, volume: "nobody's", ended: at(5)},
	}
	changes := []change{
		{what: callPublish, volume: "a", accepted: at(1), finished: at(2)}, // failed, and was sent again
		{what: callPublish, volume: "a", accepted: at(10), finished: at(12)},
		{what: callPublish, volume: "b", accepted: at(40), finished: at(42)},
		{what: callDelete, volume: "a", accepted: at(60), finished: at(61)},
	}
	got := delays(calls, changes, callPublish, callDelete)
	want := []delay{{3 * time.Second, 2 * time.Second}, {4 * time.Second, 2 * time.Second}}
	if !slices.Equal(got, want) {
		t.Errorf("delays() = %v, want %v", got, want)
	}
	if over, late := percentile(got, 50, delay.over), percentile(got, 99, delay.late); over != 1.5 || late != 2000 {
		t.Errorf("half of the calls took %v x, the latest came %v ms late, want 1.5 and 2000", over, late)
	}
	if nothing := percentile(nil, 50, delay.over); nothing < 1e9 {
		t.Errorf("percentile of nothing = %v, want one above every bar", nothing)
	}
}

func TestPercentileIsTheSmallestValueThatEnoughAreNotAbove(t *testing.T) {
	var all []delay
	for i := range 100 {
		all = append(all, delay{call: time.Duration(100 - i), operation: 1})
	}
	for percent, want := range map[float64]float64{1: 1, 50: 50, 99: 99, 100: 100} {
		if got := percentile(all, percent, delay.over); got != want {
			t.Errorf("percentile(1 to 100, %v) = %v, want %v", percent, got, want)
		}
	}
}
