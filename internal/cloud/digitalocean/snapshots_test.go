package digitalocean_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// P1: the API's rate limit delays and never fails; the rule about snapshots, which has the same status, is
// an answer at once, and nothing is left behind.
func TestTheTwoKindsOf429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{Rules: emulator.Rules{SnapshotInterval: clock.Fixed(10 * time.Minute)}})
		c := stack(open(t, account))
		limit := account.Arm(emulator.Fault{Times: 1, Effect: faults.Effect{Status: 429, Header: map[string]string{"retry-after": "0"}}})
		vol := volume(t, c, "a")
		if limit.Hits() != 1 {
			t.Errorf("the create was refused %d times, want once", limit.Hits())
		}
		snap := func(name string) (cloud.Snapshot, error) {
			return c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: name, Volume: vol.ID})
		}
		first, err := snap("one")
		must(t, err)
		account.ResetStats()
		_, err = snap("two")
		want(t, err, fault.Precondition, "10 minutes")
		if n := account.Stats().Routes["POST /v2/volumes/{volume_id}/snapshots"]; n != 1 {
			t.Errorf("the snapshot was asked for %d times, want once", n)
		}
		again, err := snap("one") // refused by the same rule, and yet it is there
		if err != nil || again.ID != first.ID {
			t.Errorf("the snapshot again = %+v, %v, want %+v", again, err, first)
		}
	})
}

// C8: a snapshotter that was restarted before it had written the answer down asks again, long after the rule of 10
// minutes. Where names of snapshots may repeat, only a look keeps the cloud from making another one.
func TestASnapshotAskedForAgainLongAfterIsTheSame(t *testing.T) {
	for name, repeat := range map[string]bool{"names are taken once": false, "names may repeat": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := start(t, emulator.Options{Rules: emulator.Rules{SnapshotNamesRepeat: repeat, SnapshotInterval: clock.Fixed(10 * time.Minute)}})
				c := stack(open(t, account))
				req := cloud.CreateSnapshotRequest{Name: "s", Volume: volume(t, c, "a").ID}
				first := takeSnapshot(t, c, req)
				time.Sleep(11 * time.Minute)
				again := takeSnapshot(t, c, req)
				if again != first || len(account.Snapshots()) != 1 {
					t.Errorf("CreateSnapshot again = %+v, want %+v, and there are %d snapshots", again, first, len(account.Snapshots()))
				}
			})
		})
	}
}

func TestAVolumeWithAllItsSnapshotsIsExhausted(t *testing.T) {
	account := start(t, emulator.Options{Rules: emulator.Rules{SnapshotsPerVolume: 25}})
	c := open(t, account)
	vol := volume(t, c, "a")
	var err error
	for n := 0; n < 26 && err == nil; n++ {
		_, err = c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: fmt.Sprintf("s%d", n), Volume: vol.ID})
	}
	want(t, err, fault.Exhausted, "25 snapshots")
}

// A quota that stops a growth leaves the copy, which another controller may have found: the outcome is open,
// and the repeat goes on from there. A blank volume that the quota refuses leaves nothing and is final.
func TestARestoreThatTheQuotaStopsIsFinishedLater(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	vol := volume(t, c, "origin")
	snap := takeSnapshot(t, c, cloud.CreateSnapshotRequest{Name: "s", Volume: vol.ID})
	account.SetRules(func(r *emulator.Rules) { r.CapacityLimit = 2 })
	req := request("copy")
	req.Size, req.Source.Snapshot = 3*cloud.GiB, snap.ID
	for range 2 {
		_, err := c.CreateVolume(t.Context(), req)
		want(t, err, fault.Uncertain, "limit")
	}
	blank := request("blank")
	blank.Size = 5 * cloud.GiB
	_, err := c.CreateVolume(t.Context(), blank)
	want(t, err, fault.Exhausted, "limit")
	account.SetRules(func(r *emulator.Rules) { r.CapacityLimit = 0 })
	made, err := c.CreateVolume(t.Context(), req)
	if err != nil || made.Size != req.Size || made.Source != req.Source || len(account.Volumes()) != 2 {
		t.Errorf("the repeat = %+v, %v, and there are %d volumes", made, err, len(account.Volumes()))
	}
}

// A copy that its source makes larger than the limit fits no request, and is gone when that is said.
func TestACopyAboveTheLimitIsRemoved(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	big := request("origin")
	big.Size = 4 * cloud.GiB
	vol := create(t, c, big)
	snap := takeSnapshot(t, c, cloud.CreateSnapshotRequest{Name: "s", Volume: vol.ID})
	req := request("copy")
	req.Limit, req.Source.Snapshot = 3*cloud.GiB, snap.ID
	_, err := c.CreateVolume(t.Context(), req)
	want(t, err, fault.OutOfRange, "4 GiB")
	if left := account.Volumes(); len(left) != 1 {
		t.Errorf("left are %+v", left)
	}
}

// Clones leave no snapshot behind, whatever happens to the removal; a sweep gets what no repeat does, and
// nothing of another cluster or younger than an hour.
func TestTemporarySnapshotsOfClonesAreRemoved(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "origin")
	req := request("clone")
	req.Source.Volume = vol.ID
	broken := account.Arm(emulator.Fault{Method: "DELETE", Effect: faults.Effect{Status: 500}})
	create(t, c, req)
	broken.Disarm()
	if n := len(account.Snapshots()); n != 1 {
		t.Fatalf("there are %d snapshots, want the one whose removal failed", n)
	}
	list, err := c.ListSnapshots(t.Context(), "", cloud.Page{})
	if err != nil || len(list.Snapshots) != 1 || list.Snapshots[0].Mark != (cloud.Mark{Driver: true, Cluster: "one", Temporary: true}) {
		t.Errorf("ListSnapshots = %+v, %v, want one that is marked as temporary", list, err)
	}
	must(t, c.Sweep(t.Context()))
	if n := len(account.Snapshots()); n != 1 {
		t.Errorf("a sweep took a snapshot that a call may still need: %d are left", n)
	}
	if _, err := stack(c).CreateVolume(t.Context(), req); err != nil || len(account.Snapshots()) != 0 {
		t.Errorf("the repeat = %v, and left are the snapshots %+v", err, account.Snapshots())
	}
}

// C12: a sweep takes no other cluster's temporary snapshot, no young one and none of a user.
func TestASweepRemovesOldTemporarySnapshotsOfThisClusterOnly(t *testing.T) {
	account := start(t, emulator.Options{})
	registry := prometheus.NewRegistry()
	measured, err := ops.NewMetrics(registry)
	must(t, err)
	counting := func(cfg *digitalocean.Config) { cfg.Metrics.Ops = measured }
	young, theirs := open(t, account, counting), open(t, account, inCluster("two"))
	old := open(t, account, func(cfg *digitalocean.Config) { cfg.OrphanAge = time.Nanosecond }, counting)
	vol := volume(t, young, "origin")
	orphan := breakOff(t, account, young, vol.ID)
	breakOff(t, account, theirs, vol.ID)
	takeSnapshot(t, young, cloud.CreateSnapshotRequest{Name: "wanted", Volume: vol.ID})
	for _, name := range []string{"clone-", "clone-of-mine", orphan.Name + "0", "x" + orphan.Name} {
		_, err := account.AddSnapshot(emulator.Snapshot{Name: name, VolumeID: string(vol.ID), SizeGiB: 1})
		must(t, err)
	}
	all := len(account.Snapshots())
	must(t, young.Sweep(t.Context()))
	metrics.Of(t, registry).Want(t, metrics.Samples{"cloudblock_temporary_copies": 1})
	if left := account.Snapshots(); len(left) != all {
		t.Errorf("a sweep took what a call may still need, left are %+v", left)
	}
	must(t, old.Sweep(t.Context()))
	metrics.Of(t, registry).Want(t, metrics.Samples{"cloudblock_temporary_copies": 0})
	left := account.Snapshots()
	if len(left) != all-1 || slices.ContainsFunc(left, func(s emulator.Snapshot) bool { return s.ID == orphan.ID }) {
		t.Errorf("left are %+v, want all but the orphan %+v", left, orphan)
	}
}

// breakOff leaves the temporary snapshot of a clone.
func breakOff(t *testing.T, account *emulator.Cloud, c cloud.Cloud, of cloud.VolumeID) emulator.Snapshot {
	t.Helper()
	account.Arm(emulator.Fault{Method: "POST", Route: "/v2/volumes", Times: 1, Effect: faults.Effect{Status: 500}})
	req := request("clone")
	req.Source.Volume = of
	_, err := c.CreateVolume(t.Context(), req)
	want(t, err, fault.Uncertain)
	all := account.Snapshots()
	return all[len(all)-1]
}

// The quota refuses the growth of a copy to one controller, while another one, asked the same, finds the
// copy by its name and finishes it: what was handed out stays (found by the model-based tester).
func TestACopyThatAnotherControllerFinishesStays(t *testing.T) {
	for n := range 10 {
		account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(10 * time.Millisecond))})
		first, second := open(t, account), open(t, account)
		vol := volume(t, first, "origin")
		snap := takeSnapshot(t, first, cloud.CreateSnapshotRequest{Name: "s", Volume: vol.ID})
		req := request("copy")
		req.Size, req.Source.Snapshot = 3*cloud.GiB, snap.ID
		account.Arm(emulator.Fault{Method: "POST", Body: `"resize"`, Times: 1, Effect: faults.Effect{Status: 403, Message: "capacity limit exceeded"}})
		account.Arm(emulator.Fault{Method: "DELETE", Effect: faults.Effect{Delay: clock.Fixed(15 * time.Millisecond)}})
		done := make(chan error, 1)
		go func() { _, err := first.CreateVolume(t.Context(), req); done <- err }()
		<-time.After(time.Duration(2*n) * time.Millisecond)
		made, err := stack(second).CreateVolume(t.Context(), req)
		firstErr := <-done
		if err != nil {
			want(t, err, fault.Uncertain)
			made = create(t, stack(second), req)
		}
		if got, found := account.Volume(string(made.ID)); !found || got.SizeGiB != 3 || len(account.Volumes()) != 2 {
			t.Errorf("the volume that was handed out is %+v (exists: %v); the first controller said %v", got, found, firstErr)
		}
	}
}

// C5: a growth that has completed says nothing of a volume that was deleted meanwhile.
func TestAVolumeDeletedWhileItGrewHasNotGrown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := start(t, emulator.Options{})
		c, other := open(t, account), open(t, account)
		vol := volume(t, c, "a")
		account.Arm(emulator.Fault{Method: "POST", Body: `"resize"`, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(50 * time.Millisecond), DelayAnswer: clock.Fixed(100 * time.Millisecond)}})
		done := make(chan error, 1)
		go func() { _, err := c.ExpandVolume(t.Context(), vol.ID, 2*cloud.GiB); done <- err }()
		until(t, "a change is under way", func() bool { return len(account.Running()) > 0 })
		must(t, other.DeleteVolume(t.Context(), vol.ID)) // waits until the action has ended
		want(t, <-done, fault.NotFound)
	})
}
