package yandex_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

const createSnapshot = "SnapshotService/Create"

func snapshotRequest(name string, of cloud.VolumeID) cloud.CreateSnapshotRequest {
	return cloud.CreateSnapshotRequest{Name: name, Volume: of}
}

// A snapshot is answered while the cloud is still copying, and again until it can be restored.
func TestASnapshotIsAnsweredBeforeItIsReady(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Durations{Snapshot: clock.Fixed(time.Hour)}})
		c := stack(open(t, folder))
		id := attached(t, c)
		began := time.Now()
		for range 3 { // as the sidecar asks until it is ready
			snap, err := c.CreateSnapshot(t.Context(), snapshotRequest("s", id))
			if err != nil || snap.Ready || snap.Volume != id || snap.Size != cloud.GiB || snap.Created.IsZero() {
				t.Errorf("CreateSnapshot = %+v, %v, want one that is not ready", snap, err)
			}
		}
		if took := time.Since(began); took > time.Minute || len(folder.Snapshots()) != 1 {
			t.Errorf("it took %s, and there are %d snapshots", took, len(folder.Snapshots()))
		}
		if n := folder.Stats().Writes; n != 3 {
			t.Errorf("%d writes for a disk, its attachment and a snapshot that is asked for three times", n)
		}
		time.Sleep(2 * time.Hour)
		snap, err := c.CreateSnapshot(t.Context(), snapshotRequest("s", id))
		if err != nil || !snap.Ready {
			t.Errorf("after its time CreateSnapshot = %+v, %v", snap, err)
		}
	})
}

// C8: the sidecar keeps the id that it was told first and believes any later answer that says ready. So a snapshot that
// the cloud gives up after that is never replaced by another one: the request is an error that lets go of it, whoever
// is asked, and what was told can be deleted and leaves nothing.
func TestASnapshotThatWasToldOfIsNeverReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		effect faults.Effect
		first  bool // the same controller is asked again
	}{
		"asked again":                        {faults.Effect{Errored: true, ID: "INTERNAL"}, true},
		"a quota":                            {faults.Effect{Errored: true, ID: "RESOURCE_EXHAUSTED"}, true},
		"another controller is asked":        {faults.Effect{Errored: true, ID: "INTERNAL"}, false},
		"the answer was lost":                {faults.Effect{Errored: true, ID: "INTERNAL", Lost: faults.LostAfter}, true},
		"the answer was lost with its asker": {faults.Effect{Errored: true, ID: "INTERNAL", Lost: faults.LostAfter}, false},
	} {
		for _, vanishes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s (what failed vanishes: %v)", name, vanishes), func(t *testing.T) {
				simulated(t, func(t *testing.T) {
					folder := start(t, emulator.Options{Durations: emulator.Durations{Snapshot: clock.Fixed(time.Minute)}, Rules: emulator.Rules{FailedCreateVanishes: vanishes}})
					c := open(t, folder)
					id := attached(t, c)
					folder.Arm(emulator.Fault{Route: createSnapshot, Times: 1, Effect: tc.effect})
					_, err := c.CreateSnapshot(t.Context(), snapshotRequest("s", id))
					if (err == nil) != (tc.effect.Lost == "") {
						t.Fatalf("the first CreateSnapshot = %v", err)
					}
					told := cloud.SnapshotID(folder.Snapshots()[0].ID)
					time.Sleep(5 * time.Minute)
					if !tc.first {
						c = open(t, folder)
					}
					neverAnother(t, folder, c, id, told)
					must(t, c.DeleteSnapshot(t.Context(), told))
					if all := folder.Snapshots(); len(all) > 0 {
						t.Errorf("after its delete there are %+v", all)
					}
					snap, err := stack(c).CreateSnapshot(t.Context(), snapshotRequest("s", id))
					if err != nil || snap.ID == told {
						t.Errorf("with its name free again CreateSnapshot = %+v, %v", snap, err)
					}
				})
			})
		}
	}
}

// neverAnother asks for the snapshot "s" again and again: it is the one that was told, not ready, or an error, and in
// the end an error that says what to do.
func neverAnother(t *testing.T, folder *emulator.Cloud, c cloud.Cloud, of cloud.VolumeID, told cloud.SnapshotID) {
	t.Helper()
	var last error
	for range 4 {
		var snap cloud.Snapshot
		snap, last = stack(c).CreateSnapshot(t.Context(), snapshotRequest("s", of))
		if last == nil && (snap.ID != told || snap.Ready) {
			t.Errorf("CreateSnapshot = %+v, it was told to be %s", snap, told)
		}
		for _, s := range folder.Snapshots() {
			if s.ID != string(told) {
				t.Errorf("there is the snapshot %+v, which nobody knows", s)
			}
		}
		<-time.After(time.Minute)
	}
	want(t, last, fault.Precondition, string(told), "delete the VolumeSnapshot")
}

// C8: a request is answered with its snapshot for as long as that is being made, also when names repeat and the key has
// been forgotten, by a controller that knows nothing.
func TestASnapshotIsFoundByItsNameWhereTheKeyIsForgotten(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{
			Durations: emulator.Durations{Snapshot: clock.Fixed(time.Hour)},
			Rules:     emulator.Rules{NamesRepeat: true, KeysForgottenAfter: clock.Fixed(time.Minute)},
		})
		c := stack(open(t, folder))
		id := attached(t, c)
		first := takeSnapshot(t, c, snapshotRequest("s", id))
		for range 3 {
			time.Sleep(25 * time.Minute)
			again, err := stack(open(t, folder)).CreateSnapshot(t.Context(), snapshotRequest("s", id))
			if err != nil || again.ID != first.ID {
				t.Errorf("CreateSnapshot again = %+v, %v, want %s", again, err, first.ID)
			}
		}
		second, err := folder.AddSnapshot(emulator.Snapshot{Name: "s", Disk: string(id), Labels: labels("s")})
		must(t, err)
		_, err = stack(open(t, folder)).CreateSnapshot(t.Context(), snapshotRequest("s", id))
		want(t, err, fault.Unavailable, second, string(first.ID), "delete the one")
		_, err = c.FindSnapshot(t.Context(), "s")
		want(t, err, fault.Unavailable, second, string(first.ID), "delete the one")
	})
}

// C2, C3 and C5: a restore in any zone and to a larger size is one write; it and its repeat answer the same, with
// the source and the size that the cloud shows.
func TestARestoreInAnotherZoneToALargerSize(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := stack(open(t, folder))
	id := origin(t, c)
	folder.SetContent(string(id), "precious")
	snap := takeSnapshot(t, c, snapshotRequest("s", id))
	repeat := request("copy")
	repeat.Zones, repeat.Size, repeat.Source.Snapshot = []string{"ru-central1-d"}, 3*cloud.GiB, snap.ID
	first := create(t, c, repeat)
	second := create(t, c, repeat)
	if d, _ := folder.Disk(string(first.ID)); d.Content != "precious" || d.Size != int64(3*cloud.GiB) || d.Zone != "ru-central1-d" {
		t.Errorf("the disk is %+v", d)
	}
	if fmt.Sprintf("%+v", first) != fmt.Sprintf("%+v", second) || first.Source != repeat.Source || first.Size != 3*cloud.GiB {
		t.Errorf("the repeats answer\n%+v\n%+v", first, second)
	}
}

// C5: a restore that asks for less than the snapshot needs gets what it needs, or OutOfRange where a limit forbids it.
func TestARestoreIsAsLargeAsItsSource(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := stack(open(t, folder))
	big := request("origin")
	big.Size = 4 * cloud.GiB
	vol := create(t, c, big)
	snap := takeSnapshot(t, c, snapshotRequest("s", vol.ID))
	for name, source := range map[string]cloud.Source{"restore": {Snapshot: snap.ID}, "clone": {Volume: vol.ID}} {
		t.Run(name, func(t *testing.T) {
			req := request(name)
			req.Source = source
			made, err := c.CreateVolume(t.Context(), req)
			if err != nil || made.Size != 4*cloud.GiB {
				t.Errorf("CreateVolume = %+v, %v, want 4 GiB", made, err)
			}
			req.Name, req.Limit = name+" with a limit", 3*cloud.GiB
			_, err = c.CreateVolume(t.Context(), req)
			want(t, err, fault.OutOfRange, "4 GiB")
		})
	}
	if n := len(folder.Snapshots()); n != 1 {
		t.Errorf("there are %d snapshots, want the one that was asked for", n)
	}
	left(t, folder, 3)
}

// Clones leave no snapshot behind, whatever happens to the removal; a sweep gets what no repeat does, and
// nothing that a call may still need.
func TestTemporarySnapshotsOfClonesAreRemoved(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := open(t, folder)
	vol := volume(t, c, "origin")
	req := request("clone")
	req.Source.Volume = vol.ID
	broken := folder.Arm(emulator.Fault{Route: "SnapshotService/Delete", Effect: faults.Effect{Lost: faults.LostBefore}})
	create(t, c, req)
	broken.Disarm()
	if n := len(folder.Snapshots()); n != 1 {
		t.Fatalf("there are %d snapshots, want the one whose removal failed", n)
	}
	list, err := c.ListSnapshots(t.Context(), "", cloud.Page{})
	if err != nil || len(list.Snapshots) != 1 || list.Snapshots[0].Mark != (cloud.Mark{Driver: true, Cluster: "one", Temporary: true}) {
		t.Errorf("ListSnapshots = %+v, %v, want one that is marked as temporary", list, err)
	}
	must(t, c.Sweep(t.Context()))
	if n := len(folder.Snapshots()); n != 1 {
		t.Errorf("a sweep took a snapshot that a call may still need: %d are left", n)
	}
	if _, err := stack(c).CreateVolume(t.Context(), req); err != nil || len(folder.Snapshots()) != 0 {
		t.Errorf("the repeat = %v, and left are the snapshots %+v", err, folder.Snapshots())
	}
}

// A sweep deletes nothing while it cannot know what is in use.
func TestASweepThatCannotReadTheDisksCountsOnly(t *testing.T) {
	folder := start(t, emulator.Options{})
	registry := prometheus.NewRegistry()
	measured, err := ops.NewMetrics(registry)
	must(t, err)
	c := open(t, folder, func(cfg *yandex.Config) { cfg.OrphanAge, cfg.Metrics.Ops = time.Nanosecond, measured })
	vol := volume(t, c, "origin")
	for _, name := range []string{"a", "b"} {
		marks := labels(name)
		marks["cloudblock-temporary"] = "clone"
		_, err := folder.AddSnapshot(emulator.Snapshot{Name: name, Disk: string(vol.ID), Labels: marks})
		must(t, err)
	}
	unread := folder.Arm(emulator.Fault{Route: "DiskService/List", Effect: faults.Effect{Status: int(codes.PermissionDenied)}})
	want(t, c.Sweep(t.Context()), fault.Denied) // whether they are in use cannot be known
	metrics.Of(t, registry).Want(t, metrics.Samples{"cloudblock_temporary_copies": 2})
	if unread.Hits() == 0 || len(folder.Snapshots()) != 2 {
		t.Errorf("left are %+v after %d refused reads, want both", folder.Snapshots(), unread.Hits())
	}
}

// C12: a sweep takes no other cluster's temporary snapshot, no young one and none of a user.
func TestASweepRemovesOldTemporarySnapshotsOfThisClusterOnly(t *testing.T) {
	folder := start(t, emulator.Options{})
	registry := prometheus.NewRegistry()
	measured, err := ops.NewMetrics(registry)
	must(t, err)
	counting := func(cfg *yandex.Config) { cfg.Metrics.Ops = measured }
	young := open(t, folder, counting)
	old := open(t, folder, func(cfg *yandex.Config) { cfg.OrphanAge = time.Nanosecond }, counting)
	vol := volume(t, young, "origin")
	temporary := func(labels map[string]string) map[string]string {
		labels["cloudblock-temporary"] = "clone"
		return labels
	}
	anothers := labels("clone")
	anothers["cloudblock-cluster"] = "two"
	var all []string
	for name, labels := range map[string]map[string]string{
		"left-over": temporary(labels("clone")), "anothers": temporary(anothers), "wanted": labels("clone"), "somebodys": temporary(map[string]string{}),
	} {
		id, err := folder.AddSnapshot(emulator.Snapshot{Name: name, Disk: string(vol.ID), Labels: labels})
		must(t, err)
		all = append(all, id)
	}
	must(t, young.Sweep(t.Context()))
	metrics.Of(t, registry).Want(t, metrics.Samples{"cloudblock_temporary_copies": 1})
	if left := folder.Snapshots(); len(left) != len(all) {
		t.Errorf("a sweep took what a call may still need, left are %+v", left)
	}
	must(t, old.Sweep(t.Context()))
	metrics.Of(t, registry).Want(t, metrics.Samples{"cloudblock_temporary_copies": 0})
	left := folder.Snapshots()
	if len(left) != len(all)-1 || slices.ContainsFunc(left, func(s emulator.Snapshot) bool { return s.Name == "left-over" }) {
		t.Errorf("left are %+v, want all but the left-over", left)
	}
}
