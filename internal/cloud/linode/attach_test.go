package linode_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
)

// A1: an attachment that an earlier detach is still undoing is none. The attach that meets it waits for the
// detach, and attaches then, also where the volume's device shows until the very end.
func TestAnAttachWaitsForADetachThatIsUnderWay(t *testing.T) {
	for name, rules := range map[string]emulator.Rules{
		"the device goes first": {}, "the device shows as it goes": {ReadyWhileDetaching: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Rules: rules})
				dying, living := open(t, account), open(t, account)
				vol := volume(t, dying, "a")
				_, err := dying.Attach(t.Context(), vol.ID, node1)
				must(t, err)
				post(account, detachRoute, faults.Effect{Takes: clock.Fixed(2 * time.Second)})
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				want(t, dying.Detach(ctx, vol.ID, node1), fault.Uncertain)
				_, err = living.Attach(t.Context(), vol.ID, node1)
				must(t, err)
				if running := account.Running(); len(running) > 0 {
					t.Errorf("Attach answered while %+v", running)
				}
				at(t, account, vol.ID, linode1)
			})
		})
	}
}

// A detach that the cloud gives up without a word is not waited for until its caller gives up, and does not hold
// up the other volumes of the Linode, whatever the volume shows meanwhile.
func TestADetachThatFailsInSilenceHoldsUpNoOther(t *testing.T) {
	for name, rules := range map[string]emulator.Rules{
		"the device shows as it goes": {ReadyWhileDetaching: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Rules: rules, Durations: emulator.Durations{Detach: clock.Fixed(time.Second)}})
				c := open(t, account)
				vol, other := volume(t, c, "ab"), volume(t, c, "cd")
				_, err := c.Attach(t.Context(), vol.ID, node1)
				must(t, err)
				post(account, detachRoute, faults.Effect{Errored: true})
				began := time.Now()
				done := make(chan error, 1)
				go func() { done <- c.Detach(t.Context(), vol.ID, node1) }()
				synctest.Wait()
				_, err = c.Attach(t.Context(), other.ID, node1)
				must(t, err)
				want(t, <-done, fault.Unavailable, "sent again")
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("it took %s", took)
				}
				must(t, c.Detach(t.Context(), vol.ID, node1))
				at(t, account, vol.ID, 0)
			})
		})
	}
}

// A1: a detach that comes late takes nothing off another Linode, although the API has no word for from where.
func TestALateDetachTakesNothingOffAnotherLinode(t *testing.T) {
	for name, node := range map[string]cloud.NodeID{"from its Linode": node1, "from wherever it is": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{})
				dying, living := open(t, account), open(t, account)
				vol := volume(t, dying, "a")
				post(account, attachRoute, faults.Effect{Takes: clock.Fixed(time.Second)})
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := dying.Attach(ctx, vol.ID, node1)
				want(t, err, fault.Uncertain)
				must(t, living.Detach(t.Context(), vol.ID, node))
				if running := account.Running(); len(running) > 0 {
					t.Errorf("Detach answered while %+v", running)
				}
				at(t, account, vol.ID, 0)
				_, err = living.Attach(t.Context(), vol.ID, node2)
				must(t, err)
				must(t, dying.Detach(t.Context(), vol.ID, node1))
				at(t, account, vol.ID, linode2)
			})
		})
	}
}

// A1: a detach that waits for the API's budget for longer than its lease reads the volume again before it is sent.
func TestADetachThatTheBudgetHoldsBackLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		slow, other := open(t, account), open(t, account)
		vol := volume(t, slow, "a")
		_, err := slow.Attach(t.Context(), vol.ID, node1)
		must(t, err)
		post(account, detachRoute, faults.Effect{Status: 429, Header: map[string]string{"Retry-After": "30"}})
		done := make(chan error, 1)
		go func() { done <- slow.Detach(t.Context(), vol.ID, node1) }()
		synctest.Wait()
		time.Sleep(time.Second) // it was refused, and waits
		must(t, other.Detach(t.Context(), vol.ID, node1))
		_, err = other.Attach(t.Context(), vol.ID, node2)
		must(t, err)
		must(t, <-done)
		at(t, account, vol.ID, linode2)
	})
}

// A1: an attach whose caller has gone before it was answered lands before the detach that follows it.
func TestALateAttachDoesNotOvertakeTheDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := open(t, account)
		vol := volume(t, c, "a")
		post(account, attachRoute, faults.Effect{Delay: clock.Fixed(150 * time.Millisecond)})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := c.Attach(ctx, vol.ID, node1)
		want(t, err, fault.Uncertain)
		must(t, c.Detach(t.Context(), vol.ID, node1))
		time.Sleep(200 * time.Millisecond)
		at(t, account, vol.ID, 0)
	})
}

// A2 and A9: "already attached" is settled by a fresh read: here is OK, elsewhere names the Linode, and an
// old list changes nothing about it.
func TestAlreadyAttachedIsSettledByAFreshLook(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "pvc-1")
	account.Attached(number(t, vol.ID), linode2)
	account.Arm(emulator.Fault{Method: "GET", Route: volumesRoute, Effect: faults.Effect{StaleChanges: 2}})
	_, err := c.Attach(t.Context(), vol.ID, node1)
	want(t, err, fault.Precondition, "Linode 102")
	dev, err := c.Attach(t.Context(), vol.ID, node2)
	if err != nil || dev.Name != "scsi-0Linode_Volume_pvc-1" || dev.Serial != "pvc-1" {
		t.Errorf("Attach where it is = %+v, %v", dev, err)
	}
	must(t, c.Detach(t.Context(), vol.ID, node2))
	_, err = c.Attach(t.Context(), vol.ID, node1)
	must(t, err)
}

// A3 and A11: a Linode that is gone gives its volumes back, and success is said only when the volume's own
// record shows it.
func TestDetachFromALinodeThatIsGoneWaitsForTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := open(t, account)
		vol := volume(t, c, "a")
		_, err := c.Attach(t.Context(), vol.ID, node1)
		must(t, err)
		account.RemoveLinode(linode1, 100*time.Millisecond)
		must(t, cloudtest.Repeat(func() error {
			err := stack(c).Detach(t.Context(), vol.ID, node1)
			if err == nil {
				at(t, account, vol.ID, 0)
			}
			return err
		}))
		_, err = c.Attach(t.Context(), vol.ID, node1)
		want(t, err, fault.NotFound, "no such Linode")
		_, err = c.Attach(t.Context(), vol.ID, node2)
		must(t, err)
	})
}

// Where the cloud refuses that detach because the Linode is gone, one request is enough: the answer says what it waits for.
func TestADetachFromALinodeThatIsGoneSendsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c := open(t, account)
		vol := volume(t, c, "a")
		_, err := c.Attach(t.Context(), vol.ID, node1)
		must(t, err)
		account.Arm(emulator.Fault{Method: "POST", Route: detachRoute, Effect: faults.Effect{Status: 404}})
		account.ResetStats()
		began := time.Now()
		want(t, c.Detach(t.Context(), vol.ID, node1), fault.Unavailable, "still shows as attached")
		if took, writes := time.Since(began), account.Stats().Writes; took > time.Second || writes != 1 {
			t.Errorf("the detach took %s and %d requests, want one", took, writes)
		}
	})
}

// A Linode that another one is changing delays an attach and does not fail it.
func TestABusyLinodeIsADelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Rules: emulator.Rules{OneChangePerLinode: true}})
		mine, other := open(t, account), open(t, account, inCluster("two"))
		vol, theirs := volume(t, mine, "a"), volume(t, other, "b")
		post(account, attachRoute, faults.Effect{Takes: clock.Fixed(100 * time.Millisecond)})
		done := make(chan error, 1)
		go func() { _, err := other.Attach(t.Context(), theirs.ID, node1); done <- err }()
		until(t, "a change is under way", func() bool { return len(account.Running()) > 0 })
		_, err := mine.Attach(t.Context(), vol.ID, node1)
		must(t, err)
		must(t, <-done)
		at(t, account, vol.ID, linode1)
		at(t, account, theirs.ID, linode1)
	})
}

// Many attaches to one Linode queue here instead of colliding there.
func TestOneLinodeTakesItsChangesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(5 * time.Millisecond))})
		c := open(t, account)
		var ids []cloud.VolumeID
		for n := range 6 {
			ids = append(ids, volume(t, c, fmt.Sprintf("v%d", n)).ID)
		}
		account.ResetStats()
		cloudtest.AtOnce(t, len(ids), func(n int) error { _, err := c.Attach(t.Context(), ids[n], node1); return err })
		stats := account.Stats()
		if stats.MaxParallel[linode1] != 1 || stats.Writes != len(ids) {
			t.Errorf("%d writes for %d attaches, at most %d at once", stats.Writes, len(ids), stats.MaxParallel[linode1])
		}
	})
}
