package cloudtest

import (
	"sync"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func (h Harness) testSnapshots(t *testing.T) {
	h.snapshots(t, "it makes a snapshot of a volume", func(e *env, vol cloud.Volume) {
		snap := e.snapshot("snap", vol.ID)
		if snap.ID == "" || snap.Volume != vol.ID || snap.Size > vol.Size || snap.Size <= 0 || snap.Created.IsZero() {
			e.Errorf("CreateSnapshot = %+v", snap)
		}
	})
	h.snapshots(t, "a name that is taken is fault.Conflict", func(e *env, vol cloud.Volume) {
		snap := e.snapshot("snap", vol.ID)
		other := e.volume("other")
		requests := []cloud.CreateSnapshotRequest{{Name: "snap", Volume: other.ID}}
		if !e.h.Idempotent {
			requests = append(requests, cloud.CreateSnapshotRequest{Name: "snap", Volume: vol.ID})
		}
		for _, req := range requests {
			ask := func() (cloud.Snapshot, error) { return e.c.CreateSnapshot(e.Context(), req) }
			_, err := ask()
			if e.h.Idempotent {
				_, err = until(e, ask)
			}
			e.want(err, "CreateSnapshot under a taken name", fault.Conflict)
		}
		if again, err := e.settleSnapshot(cloud.CreateSnapshotRequest{Name: "snap", Volume: vol.ID}); err != nil || !sameSnapshot(again, snap) {
			e.Errorf("the same snapshot again = %+v, %v, want %+v", again, err, snap)
		}
		e.snapshotsLeft(snap.ID)
	})
	h.snapshots(t, "fault.NotFound when there is no such volume", func(e *env, vol cloud.Volume) {
		e.ok(e.c.DeleteVolume(e.Context(), vol.ID), "DeleteVolume")
		_, err := e.c.CreateSnapshot(e.Context(), cloud.CreateSnapshotRequest{Name: "of nothing", Volume: vol.ID})
		e.want(err, "CreateSnapshot of nothing", fault.NotFound)
		e.snapshotsLeft()
	})
	h.snapshots(t, "fault.Precondition when the volume cannot be snapshotted now, and nothing is left behind", func(e *env, vol cloud.Volume) {
		if e.h.Unfit == nil {
			return
		}
		fit := e.h.Unfit(e.T, vol.ID)
		_, err := e.c.CreateSnapshot(e.Context(), cloud.CreateSnapshotRequest{Name: "unfit", Volume: vol.ID})
		e.want(err, "CreateSnapshot of what is not fit", fault.Precondition)
		e.snapshotsLeft()
		fit()
		e.snapshot("unfit", vol.ID)
	})
	h.snapshots(t, "many creates of one snapshot at once make one", func(e *env, vol cloud.Volume) {
		req := cloud.CreateSnapshotRequest{Name: "popular", Volume: vol.ID}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { _, _ = e.c.CreateSnapshot(e.Context(), req) })
		}
		all.Wait()
		e.snapshotsLeft(e.snapshot(req.Name, vol.ID).ID)
	})
	h.testMadeSnapshots(t)
}

// testMadeSnapshots tests existing snapshots.
func (h Harness) testMadeSnapshots(t *testing.T) {
	h.snapshots(t, "it is found by its request name and by its id, and under no other", func(e *env, vol cloud.Volume) {
		snap := e.snapshot("wanted", vol.ID)
		e.snapshot("unwanted", vol.ID)
		found, err := e.c.FindSnapshot(e.Context(), "wanted")
		if err != nil || !sameSnapshot(found, snap) {
			e.Errorf("FindSnapshot = %+v, %v, want %+v", found, err, snap)
		}
		got, err := e.c.GetSnapshot(e.Context(), snap.ID)
		if err != nil || !sameSnapshot(got, snap) {
			e.Errorf("GetSnapshot = %+v, %v, want %+v", got, err, snap)
		}
		for _, name := range []string{"", "want", "WANTED", "wanted ", string(snap.ID)} {
			_, err := e.c.FindSnapshot(e.Context(), name)
			e.want(err, "FindSnapshot of another name", fault.NotFound)
		}
		_, err = e.c.GetSnapshot(e.Context(), cloud.SnapshotID(vol.ID))
		e.want(err, "GetSnapshot with a volume's id", fault.NotFound)
	})
	h.snapshots(t, "it removes the snapshot with exactly this id, and one that does not exist is not an error", func(e *env, vol cloud.Volume) {
		a, b := e.snapshot("a", vol.ID), e.snapshot("b", vol.ID)
		for range 3 {
			e.ok(e.c.DeleteSnapshot(e.Context(), a.ID), "DeleteSnapshot")
		}
		_, err := e.c.GetSnapshot(e.Context(), a.ID)
		e.want(err, "GetSnapshot of what is gone", fault.NotFound)
		_, err = e.c.FindSnapshot(e.Context(), "a")
		e.want(err, "FindSnapshot of what is gone", fault.NotFound)
		e.snapshotsLeft(b.ID)
		e.left(vol.ID)
	})
	h.snapshots(t, "volumes restored from it live on", func(e *env, vol cloud.Volume) {
		snap := e.snapshot("snap", vol.ID)
		req := e.request("restored")
		req.Size = max(req.Size, snap.Size)
		req.Source.Snapshot = snap.ID
		restored := e.create(req)
		e.ok(e.c.DeleteSnapshot(e.Context(), snap.ID), "DeleteSnapshot")
		if got := e.get(restored.ID); got.Size != restored.Size {
			e.Errorf("the restored volume is now %+v", got)
		}
	})
}

func (h Harness) testListSnapshots(t *testing.T) {
	h.testSnapshotPages(t)
	h.snapshots(t, "a volume's snapshots, and none for a volume that does not exist", func(e *env, vol cloud.Volume) {
		other := e.volume("other")
		mine, theirs := e.snapshot("mine", vol.ID), e.snapshot("theirs", other.ID)
		for of, want := range map[cloud.VolumeID][]cloud.SnapshotID{
			"": {mine.ID, theirs.ID}, vol.ID: {mine.ID}, other.ID: {theirs.ID},
			vol.ID + "9": nil, cloud.VolumeID(mine.ID): nil,
		} {
			e.snapshotsOf(of, want...)
		}
	})
}

// snapshots runs a subtest if there are snapshots, and requires fault.Unsupported if not.
func (h Harness) snapshots(t *testing.T, sentence string, test func(e *env, vol cloud.Volume)) {
	t.Helper()
	h.check(t, sentence, func(e *env) {
		vol := e.volume("origin")
		if e.caps.Snapshots {
			test(e, vol)
			return
		}
		ctx := e.Context()
		_, err := e.c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: "snap", Volume: vol.ID})
		e.want(err, "CreateSnapshot", fault.Unsupported)
		_, err = e.c.FindSnapshot(ctx, "snap")
		e.want(err, "FindSnapshot", fault.Unsupported)
		_, err = e.c.GetSnapshot(ctx, "snap")
		e.want(err, "GetSnapshot", fault.Unsupported)
		_, err = e.c.ListSnapshots(ctx, "", cloud.Page{})
		e.want(err, "ListSnapshots", fault.Unsupported)
		e.want(e.c.DeleteSnapshot(ctx, "snap"), "DeleteSnapshot", fault.Unsupported)
		e.left(vol.ID)
	})
}

// sameSnapshot compares snapshots without regard to the time zone of Created.
func sameSnapshot(a, b cloud.Snapshot) bool {
	same := a.Created.Equal(b.Created)
	a.Created = b.Created
	return same && a == b
}

func (e *env) snapshotsLeft(want ...cloud.SnapshotID) {
	e.Helper()
	e.snapshotsOf("", want...)
}

// snapshotsOf fails the test unless the list has exactly these snapshots.
func (e *env) snapshotsOf(of cloud.VolumeID, want ...cloud.SnapshotID) {
	e.Helper()
	have := map[cloud.SnapshotID]bool{}
	for token := ""; ; {
		list, err := e.c.ListSnapshots(e.Context(), of, cloud.Page{Token: token})
		if err != nil {
			e.Fatalf("ListSnapshots(%q) = %v", of, err)
		}
		for _, snap := range list.Snapshots {
			have[snap.ID] = true
		}
		if token = list.Next; token == "" {
			break
		}
	}
	for _, id := range want {
		if !have[id] {
			e.Errorf("ListSnapshots(%q) lacks %s", of, id)
		}
		delete(have, id)
	}
	for id := range have {
		e.Errorf("ListSnapshots(%q) has %s too", of, id)
	}
}
