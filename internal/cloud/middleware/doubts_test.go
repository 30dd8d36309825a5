package middleware_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// C1: a list may be older than the object that an earlier call created and not show it, so for a while it does not make
// a refusal final.
func TestAnOldListDoesNotMakeARefusalFinal(t *testing.T) {
	type answered map[time.Duration]fault.Kind // the kind of a refused repeat, by the time since the create
	for name, tc := range map[string]struct {
		lost memory.Fault
		then answered
	}{
		"what was made is found": {memory.LoseAnswer(), answered{
			20 * time.Second: fault.Uncertain, 40 * time.Second: fault.None,
		}},
		"nothing was made, and repeats do not prolong the doubt": {memory.LoseRequest(), answered{
			time.Second: fault.Uncertain, time.Minute: fault.Uncertain, 119 * time.Second: fault.Uncertain, 121 * time.Second: fault.Exhausted,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				back := memory.New(memory.Config{ReadLag: 30 * time.Second})
				c := middleware.NewIdempotent(back)
				vol := create(t, c, small("source"))
				repeat := func(f memory.Fault, want fault.Kind) {
					t.Helper()
					back.Account().Arm(memory.CallCreateVolume, f)
					_, err := c.CreateVolume(t.Context(), small("a"))
					wantKind(t, "CreateVolume", err, want)
					back.Account().Arm(memory.CallCreateSnapshot, f)
					_, err = c.CreateSnapshot(t.Context(), snapshotOf("s", vol.ID))
					wantKind(t, "CreateSnapshot", err, want)
				}
				repeat(tc.lost, fault.Uncertain)
				began := time.Now()
				for _, after := range slices.Sorted(maps.Keys(tc.then)) {
					time.Sleep(time.Until(began.Add(after)))
					repeat(memory.Refuse(fault.Exhausted), tc.then[after])
				}
			})
		})
	}
}

// C18: a pool that is full has looked for the name, and none copies from another place, so these refusals are final although another
// pool is missing. That of a pool that is missing itself is not.
func TestARefusalOfAPoolIsFinalWhileAnotherIsMissing(t *testing.T) {
	for refusal, want := range map[error]fault.Kind{
		fault.PoolFull: fault.Exhausted, fault.SourceElsewhere: fault.Exhausted, fault.PoolUnusable.Explain(fault.Exhausted): fault.Exhausted,
		fault.PoolUnusable: fault.Uncertain,
	} {
		back := memory.New(memory.Config{})
		c := middleware.NewIdempotent(back)
		vol := create(t, c, small("source"))
		for call, with := range map[memory.Call]error{
			memory.CallCreateVolume: refusal, memory.CallFindVolume: fault.PoolUnusable,
			memory.CallCreateSnapshot: refusal, memory.CallFindSnapshot: fault.PoolUnusable,
		} {
			back.Account().Arm(call, memory.Refuse(with))
		}
		_, err := c.CreateVolume(t.Context(), small("a"))
		wantKind(t, "CreateVolume", err, want)
		_, err = c.CreateSnapshot(t.Context(), snapshotOf("s", vol.ID))
		wantKind(t, "CreateSnapshot", err, want)
	}
}
