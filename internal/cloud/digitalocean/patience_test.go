package digitalocean_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

func TestOnlyTheCloudsAnswerIsWaitedForForAMinute(t *testing.T) {
	tests := map[string]struct {
		effect faults.Effect
		limits []budget.Window
		kind   fault.Kind // "": it succeeds
		within time.Duration
		writes int
	}{
		"a write that waits for the budget for longer": {
			limits: []budget.Window{{Calls: 1, Per: 3 * time.Minute}}, within: 4 * time.Minute, writes: 1,
		},
		"a write that the cloud refuses for want of budget for longer": {
			effect: faults.Effect{Status: 429, Header: map[string]string{"Retry-After": "180"}}, within: 4 * time.Minute, writes: 2,
		},
		"a write that the cloud does not answer": {
			effect: faults.Effect{DelayAnswer: clock.Fixed(time.Hour)}, kind: fault.Uncertain, within: time.Minute, writes: 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := emulator.Start(t, emulator.Options{InMemory: true})
				c := open(t, account, func(cfg *digitalocean.Config) {
					cfg.SweepEvery = -1
					if tc.limits != nil {
						cfg.Limits = tc.limits
					}
				})
				must(t, c.Check(t.Context())) // spends the budget
				account.ResetStats()
				account.Arm(emulator.Fault{Method: "POST", Times: 1, Effect: tc.effect})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				began := time.Now()
				_, err := c.CreateVolume(ctx, request("a"))
				want(t, err, tc.kind)
				if took := time.Since(began); took > tc.within {
					t.Errorf("it took %s, want at most %s", took, tc.within)
				}
				if s := account.Stats(); s.Writes > tc.writes || s.Reads > 0 {
					t.Errorf("%d writes and %d reads, want at most %d writes", s.Writes, s.Reads, tc.writes)
				}
			})
		})
	}
}

func TestAWriteThatWasRefusedIsNotSentForACallerThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := emulator.Start(t, emulator.Options{InMemory: true})
		c := open(t, account, func(cfg *digitalocean.Config) { cfg.SweepEvery = -1 })
		account.Arm(emulator.Fault{Method: "POST", Times: 1, Effect: faults.Effect{Status: 429, Header: map[string]string{"Retry-After": "180"}}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.CreateVolume(ctx, request("a"))
		want(t, err, fault.Unavailable) // and not uncertain: it was not carried out
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not match the context's error", err)
		}
		time.Sleep(10 * time.Minute)
		if n := len(account.Volumes()); n != 0 {
			t.Errorf("%d volumes, want none", n)
		}
	})
}

// A12: a list of actions that hangs delays the attaches that it was read for, and none that begins later.
func TestAListThatHangsHoldsBackNoLaterAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Durations{Attach: clock.Fixed(2 * time.Second)}})
		c := open(t, account, func(cfg *digitalocean.Config) { cfg.Tick = 0 })
		hung := account.Arm(emulator.Fault{Method: "GET", Route: "/v2/actions", Times: 1, Effect: faults.Effect{Delay: clock.Fixed(ops.AnswerTimeout)}})
		var both sync.WaitGroup
		for n, node := range []cloud.NodeID{node1, node2} {
			id := volume(t, c, fmt.Sprint("early-", n)).ID
			both.Go(func() { attach(t, c, id, node) })
		}
		time.Sleep(5 * time.Second)
		for n := range 3 {
			id, began := volume(t, c, fmt.Sprint("late-", n)).ID, time.Now()
			attach(t, c, id, cloud.NodeID(fmt.Sprint(account.AddDroplet(emulator.Droplet{}))))
			if took := time.Since(began); took > 10*time.Second || hung.Hits() != 1 {
				t.Errorf("an attach took %s while %d lists hung, want 1", took, hung.Hits())
			}
		}
		both.Wait()
	})
}
