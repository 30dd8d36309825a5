package cloudtest

import (
	"slices"
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
		requests := []cloud.CreateSnapshotsRequest{{Name: "snap", Volumes: []cloud.VolumeID{other.ID}}}
		if !e.h.Idempotent {
			requests = append(requests, cloud.CreateSnapshotsRequest{Name: "snap", Volumes: []cloud.VolumeID{vol.ID}})
		}
		for _, req := range requests {
			ask := func() ([]cloud.Snapshot, error) { return e.c.CreateSnapshots(e.Context(), req) }
			_, err := ask()
			if e.h.Idempotent {
				_, err = until(e, ask)
			}
			e.want(err, "CreateSnapshot under a taken name", fault.Conflict)
		}
		if again, err := e.settleSnapshots(cloud.CreateSnapshotsRequest{Name: "snap", Volumes: []cloud.VolumeID{vol.ID}}); err != nil || !sameSnapshots(again, snap) {
			e.Errorf("the same snapshot again = %+v, %v, want %+v", again, err, snap)
		}
		e.snapshotsLeft(snap.ID)
	})
	h.snapshots(t, "fault.NotFound when there is no such volume", func(e *env, vol cloud.Volume) {
		e.ok(e.c.DeleteVolume(e.Context(), vol.ID), "DeleteVolume")
		_, err := e.c.CreateSnapshots(e.Context(), cloud.CreateSnapshotsRequest{Name: "of nothing", Volumes: []cloud.VolumeID{vol.ID}})
		e.want(err, "CreateSnapshots of nothing", fault.NotFound)
		e.snapshotsLeft()
	})
	h.testMadeSnapshots(t)
}

// testMadeSnapshots is about snapshots that exist.
func (h Harness) testMadeSnapshots(t *testing.T) {
	h.snapshots(t, "it is found by its request name and by its id, and under no other", func(e *env, vol cloud.Volume) {
		snap := e.snapshot("wanted", vol.ID)
		e.snapshot("unwanted", vol.ID)
		found, err := e.c.FindSnapshots(e.Context(), "wanted")
		if err != nil || !sameSnapshots(found, snap) {
			e.Errorf("FindSnapshots = %+v, %v, want %+v", found, err, snap)
		}
		got, err := e.c.GetSnapshot(e.Context(), snap.ID)
		if err != nil || !sameSnapshots([]cloud.Snapshot{got}, snap) {
			e.Errorf("GetSnapshot = %+v, %v, want %+v", got, err, snap)
		}
		for _, name := range []string{"", "want", "WANTED", "wanted ", string(snap.ID)} {
			_, err := e.c.FindSnapshots(e.Context(), name)
			e.want(err, "FindSnapshots of another name", fault.NotFound)
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
		_, err = e.c.FindSnapshots(e.Context(), "a")
		e.want(err, "FindSnapshots of what is gone", fault.NotFound)
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

// snapshots runs a subtest where there are snapshots, and demands fault.Unsupported elsewhere.
func (h Harness) snapshots(t *testing.T, sentence string, test func(e *env, vol cloud.Volume)) {
	t.Helper()
	h.check(t, sentence, func(e *env) {
		vol := e.volume("origin")
		if e.caps.Snapshots {
			test(e, vol)
			return
		}
		ctx := e.Context()
		_, err := e.c.CreateSnapshots(ctx, cloud.CreateSnapshotsRequest{Name: "snap", Volumes: []cloud.VolumeID{vol.ID}})
		e.want(err, "CreateSnapshots", fault.Unsupported)
		_, err = e.c.FindSnapshots(ctx, "snap")
		e.want(err, "FindSnapshots", fault.Unsupported)
		_, err = e.c.GetSnapshot(ctx, "snap")
		e.want(err, "GetSnapshot", fault.Unsupported)
		_, err = e.c.ListSnapshots(ctx, "", cloud.Page{})
		e.want(err, "ListSnapshots", fault.Unsupported)
		e.want(e.c.DeleteSnapshot(ctx, "snap"), "DeleteSnapshot", fault.Unsupported)
		e.left(vol.ID)
	})
}

// sameSnapshots compares in this order, and moments as moments, whatever their time zone.
func sameSnapshots(got []cloud.Snapshot, want ...cloud.Snapshot) bool {
	return slices.EqualFunc(got, want, func(a, b cloud.Snapshot) bool {
		same := a.Created.Equal(b.Created)
		a.Created = b.Created
		return same && a == b
	})
}

func (e *env) snapshotsLeft(want ...cloud.SnapshotID) {
	e.Helper()
	e.snapshotsOf("", want...)
}

// snapshotsOf fails the test unless the list has exactly these.
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
