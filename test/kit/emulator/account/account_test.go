package account_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

func TestIDsAndDurationsDependOnTheSeedAndTheName(t *testing.T) {
	span := clock.Span{Least: time.Second, Spread: time.Hour}
	draw := func(seed uint64, others ...string) []string {
		dice := account.Dice{Seed: seed}
		for _, other := range others {
			dice.UUID("disk", other)
			dice.Lasting("attach", other, span, faults.Effect{})
		}
		return []string{
			dice.UUID("disk", "pvc-1"), dice.UUID("disk", "pvc-1"),
			dice.Lasting("attach", "pvc-1", span, faults.Effect{}).String(), dice.Lasting("attach", "pvc-1", span, faults.Effect{}).String(),
		}
	}
	first := draw(1, "pvc-2")
	if again := draw(1); !slices.Equal(first, again) {
		t.Errorf("the same seed gives %v, then %v when nothing else was made before", first, again)
	}
	all := slices.Concat(first, draw(2, "pvc-2"))
	slices.Sort(all)
	if different := slices.Compact(slices.Clone(all)); len(different) != len(all) {
		t.Errorf("ids and durations repeat: %v", all)
	}
	var dice account.Dice
	if got := dice.Lasting("attach", "pvc-1", span, faults.Effect{Takes: clock.Fixed(time.Minute)}); got != time.Minute {
		t.Errorf("Lasting() = %v, want the minute that a fault asks for", got)
	}
}

func TestTimersHoldTheLockAndEndWhenStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lock sync.Mutex
		var ran []string
		timers := account.Timers{Clock: clock.New(1), Lock: &lock}
		after := func(d time.Duration, name string) {
			timers.After(d, func() {
				if lock.TryLock() {
					defer lock.Unlock()
					t.Errorf("%s runs without the lock", name)
				}
				ran = append(ran, name)
			})
		}
		lock.Lock()
		after(time.Second, "early")
		after(time.Minute, "late")
		lock.Unlock()
		time.Sleep(2 * time.Second)
		lock.Lock()
		timers.Stop()
		lock.Unlock()
		time.Sleep(time.Hour)
		if !slices.Equal(ran, []string{"early"}) {
			t.Errorf("%v ran, want only what was due before Stop", ran)
		}
	})
}

func TestAHoldEndsOnce(t *testing.T) {
	var holds account.Holds[string]
	first, second := holds.Hold("a"), holds.Hold("a")
	first()
	first()
	if !holds.Held("a") || holds.Held("b") {
		t.Errorf("Held(a), Held(b) = %v, %v after one of two holds of a was released twice", holds.Held("a"), holds.Held("b"))
	}
	if second(); holds.Held("a") {
		t.Error("Held(a) after both were released")
	}
}

func TestAResetKeepsTheNumbersOfRunningOperations(t *testing.T) {
	var record account.Record[string, string, string]
	end := func(number int) { record.Change(number, func(op *string) { *op += " ended" }) }
	before := record.Add("attach")
	record.Violate("lost")
	record.Parallel("vm", 2)
	record.Parallel("vm", 1)
	if got, want := record.MaxParallel(), map[string]int{"vm": 2}; !maps.Equal(got, want) {
		t.Errorf("MaxParallel() = %v, want %v", got, want)
	}
	record.Reset()
	after := record.Add("detach")
	end(before)
	end(after)
	if got := record.Operations(); !slices.Equal(got, []string{"detach ended"}) {
		t.Errorf("Operations() = %v, want what came after the reset", got)
	}
	if len(record.Violations()) != 0 || len(record.MaxParallel()) != 0 {
		t.Errorf("violations %v, parallel %v after a reset", record.Violations(), record.MaxParallel())
	}
}
