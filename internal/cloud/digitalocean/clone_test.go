package digitalocean_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// Another controller may remove the temporary snapshot when it has made the same clone, or failed to. That is
// no reason to say that the source does not exist, which is final.
func TestACloneWhoseSnapshotAnotherRemovesIsRepeated(t *testing.T) {
	account := start(t, emulator.Options{})
	other := open(t, account, func(cfg *digitalocean.Config) { cfg.OrphanAge = time.Nanosecond })
	var once sync.Once
	c := stack(open(t, account, func(cfg *digitalocean.Config) {
		cfg.Transport = cloudtest.Before(cfg.Transport, func(r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == "/v2/volumes" {
				once.Do(func() { must(t, other.Sweep(t.Context())) })
			}
		})
	}))
	req := request("clone")
	req.Source.Volume = origin(t, other)
	_, err := c.CreateVolume(t.Context(), req)
	want(t, err, fault.Unavailable, "temporary snapshot")
	create(t, c, req)
}

// A sweep keeps off the snapshot that a call of its own program works with, however old that is.
func TestASweepKeepsTheTemporarySnapshotOfACall(t *testing.T) {
	account := start(t, emulator.Options{})
	var c *digitalocean.Cloud
	sweeps := 0
	c = open(t, account, func(cfg *digitalocean.Config) {
		cfg.OrphanAge = time.Nanosecond
		cfg.Transport = cloudtest.Before(cfg.Transport, func(r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == "/v2/volumes" && len(account.Snapshots()) > 0 {
				must(t, c.Sweep(t.Context()))
				sweeps++
			}
		})
	})
	req := request("clone")
	req.Source.Volume = origin(t, stack(c))
	create(t, stack(c), req)
	if n := len(account.Snapshots()); sweeps == 0 || n != 0 {
		t.Errorf("after %d sweeps %d snapshots are left, want none", sweeps, n)
	}
}

// C8: the temporary snapshot whose answer was lost is found by a repeat that comes long after, also where names of
// snapshots may repeat, so that there is never another one beside it.
func TestACloneThatIsRepeatedLongAfterFindsItsSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Rules: emulator.Rules{SnapshotNamesRepeat: true, SnapshotInterval: clock.Fixed(10 * time.Minute)}})
		c := stack(open(t, account))
		req := request("clone")
		req.Source.Volume = origin(t, c)
		account.Arm(emulator.Fault{
			Method: http.MethodPost, Route: "/v2/volumes/{volume_id}/snapshots", Times: 1, Effect: faults.Effect{Lost: faults.LostAfter},
		})
		_, err := c.CreateVolume(t.Context(), req)
		want(t, err, fault.Uncertain)
		time.Sleep(11 * time.Minute)
		create(t, c, req)
		if left := account.Snapshots(); len(left) != 0 {
			t.Errorf("left are the snapshots %+v, want none", left)
		}
	})
}

// The sweep of another replica, whose clock may be hours ahead of the cloud's, leaves the snapshot of a clone that rested for
// hours: without it the repeat starts over, at the earliest 10 minutes later.
func TestACloneThatRestedForHoursKeepsItsSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		open(t, account) // sweeps by itself
		c := stack(open(t, account))
		orphan := breakOff(t, account, c, origin(t, c))
		time.Sleep(5 * time.Hour)
		if left := account.Snapshots(); len(left) != 1 || left[0].ID != orphan.ID {
			t.Errorf("left are %+v, want %+v", left, orphan)
		}
		time.Sleep(21 * time.Hour)
		synctest.Wait()
		if left := account.Snapshots(); len(left) != 0 {
			t.Errorf("left are %+v after a day", left)
		}
	})
}

// The name of a temporary snapshot that another volume's snapshot holds is no reason to copy that one.
func TestTheNameOfATemporarySnapshotMayBeHeldByAnother(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	source, other := origin(t, c), volume(t, c, "other").ID
	held := breakOff(t, account, c, source)
	must(t, c.DeleteSnapshot(t.Context(), cloud.SnapshotID(held.ID)))
	_, err := account.AddSnapshot(emulator.Snapshot{Name: held.Name, VolumeID: string(other), SizeGiB: 1})
	must(t, err)
	req := request("clone")
	req.Source.Volume = source
	_, err = stack(c).CreateVolume(t.Context(), req)
	want(t, err, fault.Precondition, "taken by another")
}

// A growth of the copy that fails keeps no temporary snapshot: the copy is whole, and the next attempt needs it no more.
func TestACopyThatCannotGrowYetKeepsNoSnapshot(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	req := request("copy")
	req.Source.Volume, req.Size = volume(t, c, "origin").ID, 5*cloud.GiB
	failing := account.Arm(emulator.Fault{Method: http.MethodPost, Body: `"resize"`, Times: 1, Effect: faults.Effect{Status: 500}})
	vol, err := stack(c).CreateVolume(t.Context(), req)
	if err != nil || vol.Size != req.Size || failing.Hits() != 1 {
		t.Errorf("CreateVolume = %+v, %v, after %d failures", vol, err, failing.Hits())
	}
	if left := account.Snapshots(); len(left) > 0 {
		t.Errorf("snapshots are left: %+v", left)
	}
}
