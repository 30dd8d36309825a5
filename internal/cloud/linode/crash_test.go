package linode_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
)

// crashed is an account for whose controllers every unfinished copy is old enough to be swept.
type crashed struct{ *emulator.Cloud }

func (a crashed) Open(t *testing.T, around cloudtest.Around) cloud.Cloud {
	return open(t, a.Cloud, func(cfg *linode.Config) {
		cfg.OrphanAge, cfg.Lateness = time.Nanosecond, time.Millisecond
		cfg.Transport = cloudtest.OverHTTP(cfg.Transport, around)
	})
}

func (a crashed) Left(t *testing.T, c cloud.Cloud) (volumes, snapshots int) {
	for range 2 { // the first has not seen any yet
		must(t, c.(*linode.Cloud).Sweep(t.Context()))
	}
	for _, v := range a.Volumes() {
		if v.Status != "deleting" { // which ends by itself
			volumes++
		}
	}
	return volumes, 0
}

func (a crashed) At(id cloud.VolumeID) cloud.NodeID {
	n, _ := strconv.Atoi(string(id))
	if vol, _ := a.Volume(n); vol.Linode != 0 {
		return cloud.NodeID(strconv.Itoa(vol.Linode))
	}
	return ""
}

func crashes(lasts clock.Span, rules emulator.Rules) cloudtest.Crashes {
	return cloudtest.Crashes{
		Fresh: func(t *testing.T) cloudtest.Account {
			opts := emulator.Options{Durations: emulator.Each(lasts), Rules: rules}
			opts.Durations.Delete = lasts
			return crashed{start(t, opts)}
		},
		Stack: stack, Request: request, Node: node1, Second: node2, Elsewhere: []string{"us-den-edge-1", "us-east"},
	}
}

// strict are answers that nothing public rules out.
var strict = emulator.Rules{DetachOfFreeRefused: true, ResizeToSameRefused: true, AttachWhileCreatingRefused: true, OneChangePerLinode: true}

// worlds are the accounts that controllers are killed in and that they share.
var worlds = map[string]emulator.Rules{
	"as far as is known": {},
	"stricter answers":   strict,
	"no slots":           {ConfigSlots: 1},
}

// C1, A10: a controller is killed at each of its requests in turn, before and after the request's effect; a new
// one that is asked the same converges, and nothing is left or doubled.
func TestAControllerKilledAtAnyRequestIsContinuedByTheNext(t *testing.T) {
	for name, rules := range worlds {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "as far as is known" {
				t.Skip("make verify runs every variant")
			}
			t.Parallel()
			crashes(clock.Fixed(2*time.Millisecond), rules).Kill(t)
		})
	}
}

// A1: a detach that waited in a queue takes the volume off no machine that has got it meanwhile.
func TestADetachThatWaitedTakesNothingOffAnotherMachine(t *testing.T) {
	crashes(clock.Fixed(2*time.Millisecond), emulator.Rules{}).Waited(t)
}

// Two controllers on one account are asked the same at once: locks and queues of one process carry no
// correctness.
func TestTwoControllersAtOnceConverge(t *testing.T) {
	for name, rules := range worlds {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "as far as is known" {
				t.Skip("make verify runs every variant")
			}
			t.Parallel()
			crashes(clock.Span{Least: time.Millisecond, Spread: 5 * time.Millisecond}, rules).Race(t)
		})
	}
}

// roundTripper is a transport made of a function.
type roundTripper = cloudtest.RoundTripper
