package linode_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

const cloneRoute = volumeRoute + "/clone"

// replicas are two controllers of one cluster, whose clocks are an hour off, each to its side, and which sweep often.
func replicas(t *testing.T, account *emulator.Cloud) []cloud.Cloud {
	t.Helper()
	var both []cloud.Cloud
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		both = append(both, stack(open(t, account, func(cfg *linode.Config) {
			cfg.SweepEvery, cfg.Tick = 10*time.Minute, 10*time.Second
			cfg.Now = func() time.Time { return time.Now().Add(off) }
		})))
	}
	return both
}

// slowly makes each PUT and DELETE take effect up to 50 s late.
func slowly(account *emulator.Cloud) {
	for _, method := range []string{"PUT", "DELETE"} {
		account.Arm(emulator.Fault{Method: method, Effect: faults.Effect{Delay: clock.Span{Spread: 50 * time.Second}}})
	}
}

// provision asks for a copy as the provisioner does, until it is there. away is the longest pause between two calls.
func provision(t *testing.T, rng *rand.Rand, by []cloud.Cloud, req cloud.CreateVolumeRequest, away time.Duration) cloud.Volume {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rng.IntN(5))*time.Minute)
		made, err := by[rng.IntN(len(by))].CreateVolume(ctx, req)
		cancel()
		if err == nil {
			return made
		}
		must(t, wait.Sleep(t.Context(), time.Duration(rng.Int64N(int64(away)))))
	}
}

// intact fails the test unless the account has the copy, with its label and exactly its tags, the source, and nothing else.
func intact(t *testing.T, account *emulator.Cloud, made cloud.Volume, source cloud.VolumeID) {
	t.Helper()
	got, found := account.Volume(number(t, made.ID))
	slices.Sort(got.Tags)
	want := "cloudblock-cluster:one cloudblock-source-volume:" + string(source) + " team:a"
	if !found || got.Label != "copy" || got.SizeGiB != 20 || strings.Join(got.Tags, " ") != want || len(account.Volumes()) != 2 {
		t.Errorf("volume %s was returned, and the account has it: %v, %+v; want it with the tags %s; all are %+v", made.ID, found, got, want, account.Volumes())
	}
}

// A copy is never removed that a call has returned, nor one started over that calls ask for, however long the cloud takes for it,
// however late requests take effect, and although the clocks of two controllers differ by two hours.
func TestASweepTakesNoCopyThatACallGoesOnWith(t *testing.T) {
	for _, takes := range []time.Duration{time.Minute, 13 * time.Hour, 30 * time.Hour} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("a copy of %s, seed %d", takes, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test can be repeated
					account := start(t, emulator.Options{Seed: seed, Durations: emulator.Durations{Clone: clock.Fixed(takes)}})
					both := replicas(t, account)
					source := volume(t, both[0], "source")
					slowly(account)
					made := provision(t, rng, both, copyOf("copy", source.ID), 20*time.Minute)
					if n := account.Stats().Routes["POST "+cloneRoute]; n != 1 {
						t.Errorf("%d copies were begun, want 1: %+v", n, account.Stats().Routes)
					}
					time.Sleep(26 * time.Hour)
					intact(t, account, made, source.ID)
				})
			})
		}
	}
}

// A claim that rests for about as long as a sweep waits meets the sweep again and again. What a call returns stays.
func TestASweepMeetsAClaimThatRested(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test can be repeated
				account := start(t, emulator.Options{Seed: seed})
				both := replicas(t, account)
				source := volume(t, both[0], "source")
				account.Arm(emulator.Fault{Method: "PUT", Times: 1, Effect: faults.Effect{Lost: faults.LostBefore}})
				req := copyOf("copy", source.ID)
				_, err := both[0].CreateVolume(t.Context(), req)
				if err == nil {
					t.Fatal("the copy was not broken off")
				}
				slowly(account)
				time.Sleep(24*time.Hour - 5*time.Minute + time.Duration(rng.Int64N(int64(15*time.Minute))))
				made := provision(t, rng, both, req, time.Minute)
				time.Sleep(26 * time.Hour)
				intact(t, account, made, source.ID)
			})
		})
	}
}

// A copy that the cloud makes with its source's tags is swept like any other.
func TestASweepRemovesACopyWithTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Rules: emulator.Rules{CopiesHaveTags: true}})
		c := open(t, account)
		source := volume(t, c, "source")
		account.Arm(emulator.Fault{Method: "PUT", Times: 1, Effect: faults.Effect{Lost: faults.LostBefore}})
		if _, err := c.CreateVolume(t.Context(), copyOf("copy", source.ID)); err == nil {
			t.Fatal("the copy was not broken off")
		}
		time.Sleep(26 * time.Hour)
		synctest.Wait()
		if left := account.Volumes(); len(left) != 1 {
			t.Errorf("left are %+v, want the source alone", left)
		}
	})
}

// A request may choose a name that begins as the labels of unfinished copies do.
func TestASweepRemovesNoVolumeThatIsNamedLikeACopy(t *testing.T) {
	for _, begin := range []string{"clone-", "clone_"} {
		t.Run(begin, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{})
				c := open(t, account)
				name := begin + cloud.FullHash("one")[:8]
				for _, end := range []string{"", "-", "-h", "-h0123456789abcdef", "_0123456789abcdef", "-and-more-than-a-label-holds"} {
					volume(t, c, name+end)
				}
				time.Sleep(26 * time.Hour)
				synctest.Wait()
				if left := account.Volumes(); len(left) != 6 {
					t.Errorf("left are %+v, want all volumes", left)
				}
			})
		})
	}
}
