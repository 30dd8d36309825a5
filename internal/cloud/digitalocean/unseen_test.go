package digitalocean_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// unseen arms the refusal of every look at an action, as for a token that lacks that scope.
func unseen(account *emulator.Cloud) {
	account.Arm(emulator.Fault{Method: "GET", Route: "/v2/actions/{action_id}", Effect: faults.Effect{Status: 403, Message: "not authorized"}})
}

// settled waits until the account has nothing under way.
func settled(t *testing.T, account *emulator.Cloud) {
	t.Helper()
	until(t, "nothing is under way", func() bool { return len(account.Running()) == 0 })
}

// The cloud has taken a change on and then does not let anybody see how it goes: the outcome is open, and no
// final code may say otherwise.
func TestAnActionThatCannotBeSeenIsUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(50 * time.Millisecond))})
		c := open(t, account)
		id := volume(t, c, "a").ID
		unseen(account)
		_, err := c.Attach(t.Context(), id, node1)
		want(t, err, fault.Uncertain, "not authorized")
		settled(t, account)
		_, err = c.ExpandVolume(t.Context(), id, 2*cloud.GiB)
		want(t, err, fault.Uncertain, "not authorized")
		settled(t, account)
		want(t, c.Detach(t.Context(), id, node1), fault.Uncertain, "not authorized")
	})
}

// A1: a volume is free only when no attach of it is under way. When nobody may see how one goes, it is not known.
func TestADetachThatCannotSeeTheAttachUnderWaySaysSo(t *testing.T) {
	for name, node := range map[string]cloud.NodeID{"from its droplet": node1, "from wherever it is": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{})
				dying, living := open(t, account), open(t, account)
				id := volume(t, dying, "a").ID
				account.Arm(emulator.Fault{Method: "POST", Body: `"attach"`, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(time.Second)}})
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				defer cancel()
				_, err := dying.Attach(ctx, id, node1)
				want(t, err, fault.Uncertain)
				unseen(account)
				if err := living.Detach(t.Context(), id, node); err == nil && len(account.Running()) > 0 {
					t.Errorf("Detach = %v while %+v", err, account.Running())
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
			_, err := c.Attach(t.Context(), id, node1)
			must(t, err)
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
