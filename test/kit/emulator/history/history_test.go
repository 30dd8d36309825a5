package history_test

import (
	"maps"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/history"
)

type state struct{ rows map[string]int }

func rows(s *state) map[string]int { return s.rows }

func TestAStateCanBeSeenAsItWas(t *testing.T) {
	var log history.Log[state]
	now, begin := state{rows: map[string]int{}}, time.Now()
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	history.Put(&log, at(1), &now, rows, "a", 1)
	history.Put(&log, at(2), &now, rows, "a", 2)
	history.Put(&log, at(3), &now, rows, "b", 1)
	history.Remove(&log, at(4), &now, rows, "a")
	for _, row := range []struct {
		name   string
		effect faults.Effect
		want   map[string]int
	}{
		{"now", faults.Effect{}, map[string]int{"b": 1}},
		{"one change ago", faults.Effect{StaleChanges: 1}, map[string]int{"a": 2, "b": 1}},
		{"three changes ago", faults.Effect{StaleChanges: 3}, map[string]int{"a": 1}},
		{"more changes than there were", faults.Effect{StaleChanges: 9}, map[string]int{}},
		{"at the third second", faults.Effect{StaleAge: clock.Fixed(2 * time.Second)}, map[string]int{"a": 2, "b": 1}},
		{"before all", faults.Effect{StaleAge: clock.Fixed(time.Hour)}, map[string]int{}},
	} {
		past := state{rows: maps.Clone(now.rows)}
		log.Rewind(&past, at(5), row.effect)
		if !maps.Equal(past.rows, row.want) {
			t.Errorf("%s: %v, want %v", row.name, past.rows, row.want)
		}
	}
	if len(now.rows) != 1 || history.IsStale(faults.Effect{}) || !history.IsStale(faults.Effect{StaleChanges: 1}) {
		t.Errorf("the present is %v, want it untouched", now.rows)
	}
}
