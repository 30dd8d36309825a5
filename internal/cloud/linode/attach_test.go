package linode_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// A detach that the cloud gives up without a word is not waited for until its caller gives up, and does not hold
// up the other volumes of the Linode, also while the volume shows as it goes.
func TestADetachThatFailsInSilenceHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{
			Rules: emulator.Rules{ReadyWhileDetaching: true}, Durations: emulator.Durations{Detach: clock.Fixed(time.Second)},
		})
		c := open(t, account)
		vol, other := volume(t, c, "ab"), volume(t, c, "cd")
		attach(t, c, vol.ID, node1)
		post(account, detachRoute, faults.Effect{Errored: true})
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- c.Detach(t.Context(), vol.ID, node1) }()
		synctest.Wait()
		attach(t, c, other.ID, node1)
		want(t, <-done, fault.Unavailable, "sent again")
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("it took %s", took)
		}
		must(t, c.Detach(t.Context(), vol.ID, node1))
		at(t, account, vol.ID, 0)
	})
}

// A1: a detach that waits for the API's budget for longer than its lease reads the volume again before it is sent.
func TestADetachThatTheBudgetHoldsBackLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		slow, other := open(t, account), open(t, account)
		vol := volume(t, slow, "a")
		attach(t, slow, vol.ID, node1)
		post(account, detachRoute, faults.Effect{Status: 429, Header: map[string]string{"Retry-After": "30"}})
		done := make(chan error, 1)
		go func() { done <- slow.Detach(t.Context(), vol.ID, node1) }()
		synctest.Wait()
		time.Sleep(time.Second) // it was refused, and waits
		must(t, other.Detach(t.Context(), vol.ID, node1))
		attach(t, other, vol.ID, node2)
		must(t, <-done)
		at(t, account, vol.ID, linode2)
	})
}

// Where the cloud refuses that detach because the Linode is gone, one request is enough: the answer says what it waits for.
func TestADetachFromALinodeThatIsGoneSendsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := open(t, account)
		vol := volume(t, c, "a")
		attach(t, c, vol.ID, node1)
		account.Arm(emulator.Fault{Method: "POST", Route: detachRoute, Effect: faults.Effect{Status: 404}})
		account.ResetStats()
		began := time.Now()
		want(t, c.Detach(t.Context(), vol.ID, node1), fault.Unavailable, "still shows as attached")
		if took, writes := time.Since(began), account.Stats().Writes; took > time.Second || writes != 1 {
			t.Errorf("the detach took %s and %d requests, want one", took, writes)
		}
	})
}
