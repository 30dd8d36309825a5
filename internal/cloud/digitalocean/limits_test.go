package digitalocean_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// The limit of a minute is 5 % of the hour's, which differs between accounts.
func TestTheMinutesLimitFollowsTheHours(t *testing.T) {
	for name, tc := range map[string]struct {
		minute, hour, reads int
		within              func(took time.Duration) bool
	}{
		"a large account": {500, 10_000, 450, func(took time.Duration) bool { return took < time.Minute }},
		"a small account": {100, 2000, 150, func(took time.Duration) bool { return took > time.Minute }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Limits: []rest.Limit{
					{Requests: tc.minute, Window: time.Minute}, {Requests: tc.hour, Window: time.Hour},
				}})
				c := open(t, account, func(cfg *digitalocean.Config) { cfg.Limits = nil })
				vol := volume(t, c, "one")
				began := time.Now()
				for range tc.reads {
					_, err := c.GetVolume(t.Context(), vol.ID)
					must(t, err)
				}
				if took := time.Since(began); !tc.within(took) {
					t.Errorf("%d reads took %s", tc.reads, took)
				}
				if n := account.Stats().Refused; n > 0 {
					t.Errorf("%d requests were refused", n)
				}
			})
		})
	}
}

// P1: a volume that is attached and detached all day has a history of many pages. A refusal is explained by the first, before and after
// the read of the volume.
func TestALongHistoryCostsOnePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := open(t, account)
		id := volume(t, c, "a").ID
		for range 150 {
			attach(t, c, id, node1)
			must(t, c.Detach(t.Context(), id, node1))
		}
		synctest.Wait()
		account.ResetStats()
		must(t, c.Detach(t.Context(), id, node1))
		if n := account.Stats().Routes["GET "+actionsRoute]; n != 2 {
			t.Errorf("%d reads of the history, want 2", n)
		}
	})
}
