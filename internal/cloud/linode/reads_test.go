package linode_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
)

// P1: what 100 volumes on 10 Linodes cost from their create to their delete: one write for each call, and looks
// that answer many of them, as the bench wants it.
func TestAHundredVolumesShareTheirLooks(t *testing.T) {
	for _, tc := range []struct {
		takes  time.Duration
		atOnce int
		most   int
	}{{2 * time.Second, 16, 150}, {5 * time.Second, 16, 150}, {2 * time.Second, 100, 60}, {5 * time.Second, 100, 60}} {
		t.Run(fmt.Sprintf("changes of %s, %d at a time", tc.takes, tc.atOnce), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{
					Durations: emulator.Each(clock.Fixed(tc.takes)), Rules: emulator.Rules{OneChangePerLinode: true}, Limits: emulator.RealLimits(), Seed: 7,
				})
				account.Arm(emulator.Fault{Effect: faults.Effect{Delay: clock.Span{Least: time.Millisecond, Spread: 10 * time.Millisecond}}})
				var nodes []cloud.NodeID
				for range 10 {
					nodes = append(nodes, cloud.NodeID(fmt.Sprint(account.AddLinode(emulator.Linode{MemoryMB: 96 << 10}))))
				}
				c := stack(open(t, account, func(cfg *linode.Config) { cfg.Limits, cfg.Classes, cfg.Usual, cfg.Gather = nil, nil, nil, 0 }))
				account.ResetStats()
				numbers := make(chan int, 100)
				for n := range cap(numbers) {
					numbers <- n
				}
				close(numbers)
				var all sync.WaitGroup
				for range tc.atOnce {
					all.Go(func() {
						for n := range numbers {
							if err := live(t, c, n, nodes[n%len(nodes)]); err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				s := account.Stats()
				t.Logf("%d reads: %v", s.Reads, s.Routes)
				if s.Writes != 400 || s.Reads > tc.most || s.Refused > 0 {
					t.Errorf("%d writes, %d reads, %d refused, want 400, at most %d, none: %v", s.Writes, s.Reads, s.Refused, tc.most, s.Routes)
				}
			})
		})
	}
}

func live(t *testing.T, c cloud.Cloud, n int, node cloud.NodeID) error {
	vol, err := c.CreateVolume(t.Context(), request(fmt.Sprintf("pvc-%d", n)))
	if err != nil {
		return err
	}
	if _, err := c.Attach(t.Context(), vol.ID, node); err != nil {
		return err
	}
	if err := c.Detach(t.Context(), vol.ID, node); err != nil {
		return err
	}
	return c.DeleteVolume(t.Context(), vol.ID)
}
