package yandex_test

import (
	"context"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
)

// A controller that has just started reads in the cloud's records how long changes take, so its first callers wait
// hardly longer than later ones.
func TestAFreshControllerKnowsHowLongChangesTake(t *testing.T) {
	const takes, most = 4 * time.Second, 4 * time.Second * 108 / 100
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(takes))})
		usual := func(cfg *yandex.Config) { cfg.Usual = nil }
		before := open(t, folder, usual)
		id := volume(t, before, "a").ID
		_, err := before.Attach(t.Context(), id, node1)
		must(t, err)
		must(t, before.Detach(t.Context(), id, node1))
		for what, do := range map[string]func(c *yandex.Cloud) error{
			"attach, and detach": func(c *yandex.Cloud) error { _, err := c.Attach(t.Context(), id, node1); return err },
			"growth":             func(c *yandex.Cloud) error { _, err := c.ExpandVolume(t.Context(), id, 2*cloud.GiB); return err },
		} {
			fresh := open(t, folder, usual)
			folder.ResetStats()
			began := time.Now()
			must(t, do(fresh))
			if took := time.Since(began); took > most || folder.Stats().Reads > 20 {
				t.Errorf("the first %s took %s with %d reads", what, took, folder.Stats().Reads)
			}
			began = time.Now()
			must(t, fresh.Detach(t.Context(), id, node1)) // free already after the growth
			if took := time.Since(began); took > most {
				t.Errorf("the detach after the first %s took %s", what, took)
			}
		}
	})
}

// Records of a bad hour of the cloud make nobody wait for as long after a restart.
func TestRecordsOfABadHourAreNotWaitedFor(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(2 * time.Second))})
		usual := func(cfg *yandex.Config) { cfg.Usual = nil }
		before := open(t, folder, usual)
		id := volume(t, before, "a").ID
		folder.Arm(emulator.Fault{Route: attachDisk, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(10 * time.Minute)}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := before.Attach(ctx, id, node1)
		must(t, err)
		must(t, before.Detach(t.Context(), id, node1))
		fresh := open(t, folder, usual)
		began := time.Now()
		_, err = fresh.Attach(t.Context(), id, node1)
		must(t, err)
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("an attach of 2 s took %s", took)
		}
	})
}
