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
