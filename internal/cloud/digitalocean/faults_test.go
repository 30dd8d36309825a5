package digitalocean_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
)

const actionsRoute = "/v2/volumes/{volume_id}/actions"

// stack is the backend as the program runs it.
func stack(c cloud.Cloud) cloud.Cloud {
	return middleware.Stack(c, middleware.Options{Backoff: middleware.Backoff{Attempts: 4, First: time.Millisecond, Most: 5 * time.Millisecond}})
}

func request(name string) cloud.CreateVolumeRequest {
	return cloud.CreateVolumeRequest{Name: name, Size: cloud.GiB, Zones: []string{emulator.DefaultRegion}}
}

func volume(t *testing.T, c cloud.Cloud, name string) cloud.Volume {
	t.Helper()
	vol, err := c.CreateVolume(t.Context(), request(name))
	if err != nil {
		t.Fatal(err)
	}
	return vol
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails the test unless the error has the kind and the words.
func want(t *testing.T, err error, kind fault.Kind, words ...string) {
	t.Helper()
	if fault.Of(err) != kind || (err == nil) != (kind == fault.None) {
		t.Errorf("got %v, want the kind %q", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// droplets fails the test unless the account shows the volume at exactly this droplet (0: at none).
func at(t *testing.T, account *emulator.Cloud, id cloud.VolumeID, droplet int) {
	t.Helper()
	vol, found := account.Volume(string(id))
	if !found || vol.DropletID != droplet {
		t.Errorf("volume %s is at droplet %d (exists: %v), want %d", id, vol.DropletID, found, droplet)
	}
}

// C1: whichever side of a create gets lost, the repeat finds the one volume, and a first answer that never
// came equals the second.
func TestCreateWithALostAnswerMakesOneVolume(t *testing.T) {
	for _, lost := range []faults.Lost{faults.LostBefore, faults.LostAfter} {
		t.Run(string(lost), func(t *testing.T) {
			account := start(t, emulator.Options{})
			bare := open(t, account)
			account.Arm(emulator.Fault{Method: "POST", Route: "/v2/volumes", Times: 1, Effect: faults.Effect{Lost: lost}})
			_, err := bare.CreateVolume(t.Context(), request("a"))
			want(t, err, fault.Uncertain)
			first, err := stack(bare).CreateVolume(t.Context(), request("a"))
			must(t, err)
			second, err := stack(bare).CreateVolume(t.Context(), request("a"))
			must(t, err)
			if fmt.Sprintf("%+v", first) != fmt.Sprintf("%+v", second) || len(account.Volumes()) != 1 {
				t.Errorf("the repeats answer\n%+v\n%+v, and there are %d volumes", first, second, len(account.Volumes()))
			}
		})
	}
}

func TestLostAnswersOfAttachAndDetachAreSettledByTheRepeat(t *testing.T) {
	for _, lost := range []faults.Lost{faults.LostBefore, faults.LostAfter} {
		t.Run(string(lost), func(t *testing.T) {
			account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(20 * time.Millisecond))})
			c := open(t, account)
			vol := volume(t, c, "a")
			lose := func() {
				account.Arm(emulator.Fault{Method: "POST", Route: actionsRoute, Times: 1, Effect: faults.Effect{Lost: lost}})
			}
			lose()
			_, err := c.Attach(t.Context(), vol.ID, node1)
			want(t, err, fault.Uncertain)
			_, err = c.Attach(t.Context(), vol.ID, node1)
			must(t, err)
			at(t, account, vol.ID, droplet1)
			lose()
			want(t, c.Detach(t.Context(), vol.ID, node1), fault.Uncertain)
			must(t, c.Detach(t.Context(), vol.ID, node1))
			at(t, account, vol.ID, 0)
			lose()
			_, err = c.ExpandVolume(t.Context(), vol.ID, 2*cloud.GiB)
			want(t, err, fault.Uncertain)
			exp, err := c.ExpandVolume(t.Context(), vol.ID, 2*cloud.GiB)
			if err != nil || exp.Size != 2*cloud.GiB {
				t.Errorf("ExpandVolume again = %+v, %v", exp, err)
			}
			account.Arm(emulator.Fault{Method: "DELETE", Times: 1, Effect: faults.Effect{Lost: lost}})
			want(t, c.DeleteVolume(t.Context(), vol.ID), fault.Uncertain)
			must(t, c.DeleteVolume(t.Context(), vol.ID))
			if left := account.Volumes(); len(left) > 0 {
				t.Errorf("left are %+v", left)
			}
		})
	}
}

// The cloud reports an errored action and not why: the call says what to do, and the next one sends it anew.
func TestAnErroredActionIsUnavailableAndRepeatable(t *testing.T) {
	account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(5 * time.Millisecond))})
	c := open(t, account)
	vol := volume(t, c, "a")
	fail := func() {
		account.Arm(emulator.Fault{Method: "POST", Route: actionsRoute, Times: 1, Effect: faults.Effect{Errored: true}})
	}
	fail()
	_, err := c.Attach(t.Context(), vol.ID, node1)
	want(t, err, fault.Unavailable, string(vol.ID), "droplet 101", "sent again")
	_, err = c.Attach(t.Context(), vol.ID, node1)
	must(t, err)
	fail()
	want(t, c.Detach(t.Context(), vol.ID, node1), fault.Unavailable, "sent again")
	at(t, account, vol.ID, droplet1)
	must(t, c.Detach(t.Context(), vol.ID, node1))
	fail()
	_, err = c.ExpandVolume(t.Context(), vol.ID, 2*cloud.GiB)
	want(t, err, fault.Unavailable, "sent again")
	_, err = c.ExpandVolume(t.Context(), vol.ID, 2*cloud.GiB)
	must(t, err)
}

// A1: an attachment that an earlier detach is still undoing is none. The attach that meets it waits for the
// detach, and attaches then.
func TestAnAttachWaitsForADetachThatIsUnderWay(t *testing.T) {
	account := start(t, emulator.Options{})
	dying, living := open(t, account), open(t, account)
	vol := volume(t, dying, "a")
	_, err := dying.Attach(t.Context(), vol.ID, node1)
	must(t, err)
	account.Arm(emulator.Fault{Method: "POST", Body: `"detach"`, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(200 * time.Millisecond)}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	want(t, dying.Detach(ctx, vol.ID, node1), fault.Uncertain)
	_, err = living.Attach(t.Context(), vol.ID, node1)
	must(t, err)
	if running := account.Running(); len(running) > 0 {
		t.Errorf("Attach answered while %+v", running)
	}
	at(t, account, vol.ID, droplet1)
}

// A1: "not attached" is free only when no attach is under way; and a detach that comes late takes nothing
// off another droplet.
func TestADetachWaitsForAnAttachThatIsUnderWay(t *testing.T) {
	for name, node := range map[string]cloud.NodeID{"from its droplet": node1, "from wherever it is": ""} {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			dying, living := open(t, account), open(t, account)
			vol := volume(t, dying, "a")
			account.Arm(emulator.Fault{Method: "POST", Body: `"attach"`, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(150 * time.Millisecond)}})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
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
			at(t, account, vol.ID, droplet2)
		})
	}
}

// A1: an attach whose caller has gone before it was answered lands before the detach that follows it.
func TestALateAttachDoesNotOvertakeTheDetach(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "a")
	account.Arm(emulator.Fault{Method: "POST", Body: `"attach"`, Times: 1, Effect: faults.Effect{Delay: clock.Fixed(150 * time.Millisecond)}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Attach(ctx, vol.ID, node1)
	want(t, err, fault.Uncertain)
	must(t, c.Detach(t.Context(), vol.ID, node1))
	timer := time.NewTimer(200 * time.Millisecond)
	<-timer.C
	at(t, account, vol.ID, 0)
}

// A2 and A9: "already attached" is settled by a fresh look: here is OK, elsewhere names the droplet, and an
// old list changes nothing about it.
func TestAlreadyAttachedIsSettledByAFreshLook(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "a")
	account.Attached(string(vol.ID), droplet2)
	account.Arm(emulator.Fault{Method: "GET", Route: "/v2/volumes", Effect: faults.Effect{StaleChanges: 2}})
	_, err := c.Attach(t.Context(), vol.ID, node1)
	want(t, err, fault.Precondition, "droplet 102")
	dev, err := c.Attach(t.Context(), vol.ID, node2)
	if err != nil || dev.Name != "scsi-0DO_Volume_a" || dev.Serial != "a" {
		t.Errorf("Attach where it is = %+v, %v", dev, err)
	}
	must(t, c.Detach(t.Context(), vol.ID, node2))
	_, err = c.Attach(t.Context(), vol.ID, node1)
	must(t, err)
}

// A3 and A11: a droplet that is gone gives its volumes back, and success is said only when the volume's own
// record shows it.
func TestDetachFromADropletThatIsGoneWaitsForTheRecord(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "a")
	_, err := c.Attach(t.Context(), vol.ID, node1)
	must(t, err)
	account.RemoveDroplet(droplet1, 100*time.Millisecond)
	err = c.Detach(t.Context(), vol.ID, node1)
	if err == nil {
		at(t, account, vol.ID, 0)
	} else {
		want(t, err, fault.Unavailable, "when the droplet is gone")
	}
	deadline := time.Now().Add(10 * time.Second)
	for err != nil && time.Now().Before(deadline) {
		err = stack(c).Detach(t.Context(), vol.ID, node1)
	}
	must(t, err)
	at(t, account, vol.ID, 0)
	_, err = c.Attach(t.Context(), vol.ID, node1)
	want(t, err, fault.NotFound, "no such droplet")
	_, err = c.Attach(t.Context(), vol.ID, node2)
	must(t, err)
}

// A7: a droplet that is full is Exhausted, so that the pod goes elsewhere; the volume stays free.
func TestAFullDropletIsExhausted(t *testing.T) {
	account := start(t, emulator.Options{Rules: emulator.Rules{VolumesPerDroplet: 1}})
	c := open(t, account)
	first, second := volume(t, c, "a"), volume(t, c, "b")
	_, err := c.Attach(t.Context(), first.ID, node1)
	must(t, err)
	_, err = c.Attach(t.Context(), second.ID, node1)
	want(t, err, fault.Exhausted, "no free slot")
	at(t, account, second.ID, 0)
}

// A droplet that somebody else is changing delays an attach and does not fail it.
func TestAPendingEventIsADelay(t *testing.T) {
	account := start(t, emulator.Options{})
	mine, other := open(t, account), open(t, account, inCluster("two"))
	vol, theirs := volume(t, mine, "a"), volume(t, other, "b")
	account.Arm(emulator.Fault{Method: "POST", Body: `"attach"`, Times: 1, Effect: faults.Effect{Takes: clock.Fixed(100 * time.Millisecond)}})
	done := make(chan error, 1)
	go func() { _, err := other.Attach(t.Context(), theirs.ID, node1); done <- err }()
	for len(account.Running()) == 0 {
		time.Sleep(time.Millisecond)
	}
	_, err := mine.Attach(t.Context(), vol.ID, node1)
	must(t, err)
	must(t, <-done)
	at(t, account, vol.ID, droplet1)
	at(t, account, theirs.ID, droplet1)
}

// Many attaches to one droplet queue here instead of colliding there.
func TestOneDropletTakesItsChangesInOrder(t *testing.T) {
	account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(5 * time.Millisecond))})
	c := open(t, account)
	var ids []cloud.VolumeID
	for n := range 10 {
		ids = append(ids, volume(t, c, fmt.Sprintf("v%d", n)).ID)
	}
	account.ResetStats()
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			if _, err := c.Attach(t.Context(), id, node1); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	stats := account.Stats()
	if stats.MaxParallel[droplet1] != 1 || stats.Writes != len(ids) {
		t.Errorf("%d writes for %d attaches, at most %d at once", stats.Writes, len(ids), stats.MaxParallel[droplet1])
	}
}

// The happy path is one write per call, and reads only to see how an operation stands.
func TestOneWritePerCall(t *testing.T) {
	account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(20 * time.Millisecond))})
	c := stack(open(t, account))
	vol := volume(t, c, "a")
	_, err := c.Attach(t.Context(), vol.ID, node1)
	must(t, err)
	_, err = c.ExpandVolume(t.Context(), vol.ID, 2*cloud.GiB)
	must(t, err)
	must(t, c.Detach(t.Context(), vol.ID, node1))
	must(t, c.DeleteVolume(t.Context(), vol.ID))
	stats := account.Stats()
	if stats.Writes != 5 {
		t.Errorf("%d writes for 5 calls: %v", stats.Writes, stats.Routes)
	}
	for route, n := range stats.Routes {
		if strings.HasPrefix(route, "GET ") && !strings.Contains(route, "action") {
			t.Errorf("%d reads of %s on the happy path", n, route)
		}
	}
}

// P1: the API's rate limit delays and never fails; the rule about snapshots, which has the same status, is
// an answer at once, and nothing is left behind.
func TestTheTwoKindsOf429(t *testing.T) {
	account := start(t, emulator.Options{Rules: emulator.Rules{SnapshotInterval: clock.Fixed(10 * time.Minute)}})
	c := stack(open(t, account))
	limit := account.Arm(emulator.Fault{Times: 1, Effect: faults.Effect{Status: 429, Header: map[string]string{"retry-after": "0"}}})
	vol := volume(t, c, "a")
	if limit.Hits() != 1 {
		t.Errorf("the create was refused %d times, want once", limit.Hits())
	}
	snap := func(name string) ([]cloud.Snapshot, error) {
		return c.CreateSnapshots(t.Context(), cloud.CreateSnapshotsRequest{Name: name, Volumes: []cloud.VolumeID{vol.ID}})
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
	if err != nil || again[0].ID != first[0].ID {
		t.Errorf("the snapshot again = %+v, %v, want %+v", again, err, first)
	}
}

// C8: a snapshot whose answer was lost is found by the repeat, although the rule of 10 minutes hides it.
func TestALostSnapshotIsFoundBehindTheRuleOf10Minutes(t *testing.T) {
	account := start(t, emulator.Options{Rules: emulator.Rules{SnapshotInterval: clock.Fixed(10 * time.Minute)}})
	c := stack(open(t, account))
	vol := volume(t, c, "a")
	account.Arm(emulator.Fault{Method: "POST", Route: "/v2/volumes/{volume_id}/snapshots", Times: 1, Effect: faults.Effect{Lost: faults.LostAfter}})
	var snaps []cloud.Snapshot
	var err error
	for range 2 {
		if snaps, err = c.CreateSnapshots(t.Context(), cloud.CreateSnapshotsRequest{Name: "s", Volumes: []cloud.VolumeID{vol.ID}}); err == nil {
			break
		}
		want(t, err, fault.Uncertain)
	}
	if err != nil || len(snaps) != 1 || len(account.Snapshots()) != 1 {
		t.Errorf("the repeat = %+v, %v, and there are %d snapshots", snaps, err, len(account.Snapshots()))
	}
}

func TestAVolumeWithAllItsSnapshotsIsExhausted(t *testing.T) {
	account := start(t, emulator.Options{Rules: emulator.Rules{SnapshotsPerVolume: 25}})
	c := open(t, account)
	vol := volume(t, c, "a")
	var err error
	for n := 0; n < 26 && err == nil; n++ {
		_, err = c.CreateSnapshots(t.Context(), cloud.CreateSnapshotsRequest{Name: fmt.Sprintf("s%d", n), Volumes: []cloud.VolumeID{vol.ID}})
	}
	want(t, err, fault.Exhausted, "25 snapshots")
}

// C2 and C3: a restore to a larger size whose growth fails is finished by the repeat; it and a third call
// answer the same, with the source.
func TestARestoreToALargerSizeIsFinishedByTheRepeat(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	vol := volume(t, c, "origin")
	snaps, err := c.CreateSnapshots(t.Context(), cloud.CreateSnapshotsRequest{Name: "s", Volumes: []cloud.VolumeID{vol.ID}})
	must(t, err)
	req := request("copy")
	req.Size, req.Source.Snapshot = 3*cloud.GiB, snaps[0].ID
	account.Arm(emulator.Fault{Method: "POST", Body: `"resize"`, Times: 6, Effect: faults.Effect{Errored: true}})
	_, err = c.CreateVolume(t.Context(), req)
	want(t, err, fault.Uncertain)
	second, err := c.CreateVolume(t.Context(), req)
	for err != nil && fault.Of(err) == fault.Uncertain {
		second, err = c.CreateVolume(t.Context(), req)
	}
	must(t, err)
	third, err := c.CreateVolume(t.Context(), req)
	must(t, err)
	if second.Size != 3*cloud.GiB || second.Source != req.Source || fmt.Sprintf("%+v", second) != fmt.Sprintf("%+v", third) || len(account.Volumes()) != 2 {
		t.Errorf("the repeats answer\n%+v\n%+v, and there are %d volumes", second, third, len(account.Volumes()))
	}
}

// A quota that ends a growth is said only when the half-made volume is gone (ResourceExhausted means that
// nothing is left).
func TestARestoreThatTheQuotaStopsLeavesNothing(t *testing.T) {
	account := start(t, emulator.Options{})
	c := stack(open(t, account))
	vol := volume(t, c, "origin")
	snaps, err := c.CreateSnapshots(t.Context(), cloud.CreateSnapshotsRequest{Name: "s", Volumes: []cloud.VolumeID{vol.ID}})
	must(t, err)
	account.SetRules(func(r *emulator.Rules) { r.CapacityLimit = 2 })
	req := request("copy")
	req.Size, req.Source.Snapshot = 3*cloud.GiB, snaps[0].ID
	_, err = c.CreateVolume(t.Context(), req)
	want(t, err, fault.Exhausted, "limit")
	if left := account.Volumes(); len(left) != 1 {
		t.Errorf("left are %+v", left)
	}
	req = request("blank")
	req.Size = 5 * cloud.GiB
	_, err = c.CreateVolume(t.Context(), req)
	want(t, err, fault.Exhausted, "limit")
}

// Clones leave no snapshot behind, whatever happens to the removal; a sweep gets what no repeat does, and
// nothing of another cluster or younger than an hour.
func TestTemporarySnapshotsOfClonesAreRemoved(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	vol := volume(t, c, "origin")
	req := request("clone")
	req.Source.Volume = vol.ID
	account.Arm(emulator.Fault{Method: "DELETE", Times: 1, Effect: faults.Effect{Status: 500}})
	_, err := c.CreateVolume(t.Context(), req)
	must(t, err)
	if n := len(account.Snapshots()); n != 1 {
		t.Fatalf("there are %d snapshots, want the one whose removal failed", n)
	}
	list, err := c.ListSnapshots(t.Context(), "", cloud.Page{})
	if err != nil || len(list.Snapshots) > 0 {
		t.Errorf("ListSnapshots = %+v, %v, want nothing that nobody asked for", list, err)
	}
	must(t, c.Sweep(t.Context()))
	if n := len(account.Snapshots()); n != 1 {
		t.Errorf("a sweep took a snapshot that a call may still need: %d are left", n)
	}
	if _, err := stack(c).CreateVolume(t.Context(), req); err != nil || len(account.Snapshots()) != 0 {
		t.Errorf("the repeat = %v, and left are the snapshots %+v", err, account.Snapshots())
	}
}

func TestASweepRemovesOldTemporarySnapshotsOfThisClusterOnly(t *testing.T) {
	account := start(t, emulator.Options{})
	young := open(t, account)
	old := open(t, account, func(cfg *digitalocean.Config) { cfg.LeftOverAge = time.Nanosecond })
	vol := volume(t, young, "origin")
	hash := "cloudblock-name-hash:" + cloud.FullHash("clone")
	var all []string
	for name, tags := range map[string][]string{
		"left-over":          {"cloudblock-temporary:clone", "cloudblock-cluster:one", hash},
		"another cluster's":  {"cloudblock-temporary:clone", "cloudblock-cluster:two", hash},
		"one that is wanted": {"cloudblock-cluster:one", hash},
		"somebody's own":     {"cloudblock-temporary:clone"},
	} {
		id, err := account.AddSnapshot(emulator.Snapshot{Name: name, VolumeID: string(vol.ID), SizeGiB: 1, Tags: tags})
		must(t, err)
		all = append(all, id)
	}
	must(t, young.Sweep(t.Context()))
	if left := account.Snapshots(); len(left) != len(all) {
		t.Errorf("a sweep took what a call may still need, left are %+v", left)
	}
	must(t, old.Sweep(t.Context()))
	left := account.Snapshots()
	if len(left) != len(all)-1 || slices.ContainsFunc(left, func(s emulator.Snapshot) bool { return s.Name == "left-over" }) {
		t.Errorf("left are %+v, want all but the left-over", left)
	}
}

// C7: the first acceptable region that has volumes is taken.
func TestARegionWithoutVolumesIsPassedOver(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	req := request("a")
	req.Zones = []string{"nyc2", "nowhere9", "ams3", "fra1"}
	vol, err := c.CreateVolume(t.Context(), req)
	if err != nil || vol.Zone != "ams3" {
		t.Errorf("CreateVolume = %+v, %v, want it in ams3", vol, err)
	}
	req.Name, req.Zones = "b", []string{"nyc2"}
	_, err = c.CreateVolume(t.Context(), req)
	want(t, err, fault.Exhausted, "nyc2")
}

// C12: a volume of that name that this driver did not make for this cluster is never handed out.
func TestAForeignVolumeOfTheNameIsNeverHandedOut(t *testing.T) {
	for name, tags := range map[string][]string{
		"somebody's own": nil, "another cluster's": {"cloudblock-cluster:two", "cloudblock-name-hash:" + cloud.FullHash("a")},
		"another request's": {"cloudblock-cluster:one", "cloudblock-name-hash:" + cloud.FullHash("b")},
	} {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{})
			_, err := account.AddVolume(emulator.Volume{Name: "a", SizeGiB: 1, Region: emulator.DefaultRegion, Tags: tags})
			must(t, err)
			vol, err := stack(open(t, account)).CreateVolume(t.Context(), request("a"))
			if err == nil {
				t.Errorf("CreateVolume = %+v", vol)
			}
			want(t, err, fault.Conflict)
		})
	}
}

// P5: a list is complete although entries go away between its pages, or it is an error.
func TestAListThatChangesBetweenItsPagesIsComplete(t *testing.T) {
	account := start(t, emulator.Options{})
	var ids []string
	for n := range 401 {
		id, err := account.AddVolume(emulator.Volume{Name: fmt.Sprintf("v%d", n), SizeGiB: 1, Region: emulator.DefaultRegion})
		must(t, err)
		ids = append(ids, id)
	}
	deleter := open(t, account)
	removed := map[string]bool{}
	c := open(t, account, func(cfg *digitalocean.Config) {
		base, reads := cfg.Transport, 0
		cfg.Transport = roundTripper(func(r *httpRequest) (*httpResponse, error) {
			res, err := base.RoundTrip(r) //nolint:bodyclose // whoever asked closes it
			// After each page, but for the last few, the oldest and the newest volume go away.
			if reads++; strings.HasSuffix(r.URL.Path, "/v2/volumes") && reads <= 4 {
				for _, id := range []string{ids[0], ids[len(ids)-1]} {
					if err := deleter.DeleteVolume(t.Context(), cloud.VolumeID(id)); err != nil {
						t.Error(err)
					}
					removed[id] = true
				}
				ids = ids[1 : len(ids)-1]
			}
			return res, err
		})
	})
	list, err := c.ListVolumes(t.Context(), cloud.Page{})
	must(t, err)
	seen := map[string]bool{}
	for _, vol := range list.Volumes {
		seen[string(vol.ID)] = true
	}
	for _, id := range ids {
		if !seen[id] {
			t.Errorf("the list of %d lacks %s", len(list.Volumes), id)
		}
	}
}

// A caller that goes is answered at once, and the write that was sent goes on.
func TestACallerThatGoesDoesNotCutTheWrite(t *testing.T) {
	account := start(t, emulator.Options{})
	c := open(t, account)
	account.Arm(emulator.Fault{Method: "POST", Route: "/v2/volumes", Times: 1, Effect: faults.Effect{DelayAnswer: clock.Fixed(100 * time.Millisecond)}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := c.CreateVolume(ctx, request("a"))
	if took := time.Since(began); took > 80*time.Millisecond {
		t.Errorf("the call took %s after its context had ended", took)
	}
	want(t, err, fault.Uncertain)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not match the context's error", err)
	}
	vol, err := stack(c).CreateVolume(t.Context(), request("a"))
	if err != nil || len(account.Volumes()) != 1 {
		t.Errorf("the repeat = %+v, %v, and there are %d volumes", vol, err, len(account.Volumes()))
	}
}
