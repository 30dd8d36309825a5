package linode_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// asItIs leaves limits and pauses as a real account has them.
func asItIs(cfg *linode.Config) {
	cfg.Limits, cfg.Classes, cfg.Tick, cfg.Busy, cfg.SweepEvery = nil, nil, 0, wait.Backoff{}, -1
}

// P1: what volumes cost from their create to their delete. The end of an attach and of a detach, and the state before
// a detach and a delete, are each one read of the volume; a list answers for all others.
func TestWhatVolumesCost(t *testing.T) {
	mixed := clock.Span{Least: time.Second, Spread: 4 * time.Second}
	for name, tc := range map[string]struct {
		takes   clock.Span
		volumes int
		atOnce  int
		rules   emulator.Rules
		foreign int
		reads   int
	}{
		"2 s, 16 at a time":                       {takes: clock.Fixed(2 * time.Second), volumes: 100, atOnce: 16, reads: 500},
		"5 s, 16 at a time":                       {takes: clock.Fixed(5 * time.Second), volumes: 100, atOnce: 16, reads: 550},
		"1 to 5 s, 16 at a time":                  {takes: mixed, volumes: 100, atOnce: 16, reads: 580},
		"600 volumes of others, updated stands":   {takes: clock.Fixed(2 * time.Second), volumes: 100, atOnce: 16, rules: emulator.Rules{UpdatedStands: true}, foreign: 600, reads: 500},
		"5 s, 100 at a time":                      {takes: clock.Fixed(5 * time.Second), volumes: 100, atOnce: 100, reads: 500},
		"one volume alone, with operations of 4s": {takes: clock.Fixed(4 * time.Second), volumes: 1, atOnce: 1, reads: 16},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.rules.OneChangePerLinode = true
				account := start(t, emulator.Options{
					Durations: emulator.Each(tc.takes), Rules: tc.rules, Foreign: tc.foreign, Limits: emulator.RealLimits(), Seed: 7,
				})
				account.Arm(emulator.Fault{Effect: faults.Effect{Delay: clock.Span{Least: time.Millisecond, Spread: 10 * time.Millisecond}}})
				var nodes []cloud.NodeID
				for range 10 {
					nodes = append(nodes, cloud.NodeID(fmt.Sprint(account.AddLinode(emulator.Linode{MemoryMB: 96 << 10}))))
				}
				c := stack(open(t, account, asItIs))
				numbers := make(chan int, tc.volumes)
				for n := range tc.volumes {
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
				if s.Writes != 4*tc.volumes || s.Reads > tc.reads || s.Refused > 0 {
					t.Errorf("%d writes, %d reads, %d refused, want %d, at most %d, none: %v", s.Writes, s.Reads, s.Refused, 4*tc.volumes, tc.reads, s.Routes)
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

// A1: a detach goes through however long each GET takes, and a slow API is not asked more often than a fast one.
func TestASlowAPIDelaysAndPreventsNothing(t *testing.T) {
	asked := map[time.Duration]int{}
	for _, takes := range []time.Duration{0, time.Second, 2500 * time.Millisecond, 10 * time.Second} {
		for _, part := range []string{"before its effect", "after its effect"} {
			t.Run(fmt.Sprintf("%s %s", takes, part), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(2 * time.Second))})
					c := stack(open(t, account, asItIs))
					slow := faults.Effect{Delay: clock.Fixed(takes)}
					if part == "after its effect" {
						slow = faults.Effect{DelayAnswer: clock.Fixed(takes)}
					}
					account.Arm(emulator.Fault{Method: "GET", Effect: slow})
					for n := range 3 {
						if err := live(t, c, n, node1); err != nil {
							t.Error(err)
						}
					}
					s := account.Stats()
					if takes == 0 {
						asked[0] = max(asked[0], s.Reads)
					}
					if s.Writes != 12 || s.Reads > asked[0] {
						t.Errorf("%d writes, %d reads, want 12 and no more than %d: %v", s.Writes, s.Reads, asked[0], s.Routes)
					}
				})
			})
		}
	}
}

// P1: when the budget is spent, detaches take as long as their requests need: none waits behind the reads of others until its own is too old.
func TestManyDetachesGoOnWithASpentBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := open(t, account, asItIs, func(cfg *linode.Config) { cfg.Limits = []budget.Window{{Calls: 10, Per: time.Second}} })
		began := time.Now()
		var all sync.WaitGroup
		for n := range 100 {
			id, err := account.AddVolume(emulator.Volume{Label: fmt.Sprint("volume-", n)})
			must(t, err)
			at := account.AddLinode(emulator.Linode{})
			account.Attached(id, at)
			all.Go(func() {
				if err := c.Detach(t.Context(), cloud.VolumeID(fmt.Sprint(id)), cloud.NodeID(fmt.Sprint(at))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took, s := time.Since(began), account.Stats(); took > 45*time.Second || s.Writes != 100 {
			t.Errorf("%d detaches took %s and %d reads", s.Writes, took, s.Reads)
		}
	})
}

// An operation that is much shorter than others of its kind is seen to end when they are read.
func TestAShortOperationIsReadWithTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Durations{Attach: clock.Fixed(8 * time.Second)}})
		c := open(t, account, asItIs)
		ids := []cloud.VolumeID{volume(t, c, "ab").ID, volume(t, c, "cd").ID, volume(t, c, "ef").ID, volume(t, c, "gh").ID}
		attach(t, c, ids[0], node1)
		var all sync.WaitGroup
		defer all.Wait()
		for i, node := range []cloud.NodeID{node1, node2} {
			all.Go(func() {
				if _, err := c.Attach(t.Context(), ids[1+i], node); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(5 * time.Second)
		post(account, attachRoute, faults.Effect{Takes: clock.Fixed(time.Second)})
		began := time.Now()
		attach(t, c, ids[3], cloud.NodeID(fmt.Sprint(account.AddLinode(emulator.Linode{}))))
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("an attach of 1 s next to others of 8 s took %s", took)
		}
	})
}
