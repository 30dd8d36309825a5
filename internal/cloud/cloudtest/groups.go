package cloudtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func (h Harness) testGroups(t *testing.T) {
	h.groups(t, "one snapshot of each volume, in the order of the request, all of the same instant", func(e *env, a, b cloud.Volume) {
		for name, of := range map[string][]cloud.VolumeID{"there": {a.ID, b.ID}, "back": {b.ID, a.ID}, "one": {b.ID}} {
			snaps := e.group(name, of...)
			for i, snap := range snaps {
				first := snaps[0]
				if snap.Volume != of[i] || snap.Group == "" || snap.Group != first.Group || snap.ID == "" || snap.Size <= 0 {
					e.Errorf("the snapshots of %q = %+v, want them in this order and of one group", of, snaps)
				}
				if !snap.Created.Equal(first.Created) || snap.Created.IsZero() || i > 0 && snap.ID == first.ID {
					e.Errorf("the snapshots of %q = %+v, want different ones of one instant", of, snaps)
				}
				if got, err := e.c.GetSnapshot(e.Context(), snap.ID); err != nil || !sameSnapshots([]cloud.Snapshot{got}, snap) {
					e.Errorf("GetSnapshot = %+v, %v, want %+v", got, err, snap)
				}
			}
		}
	})
	h.groups(t, "a single snapshot is of no group, and each group has its own id", func(e *env, a, b cloud.Volume) {
		if single := e.snapshot("single", a.ID); single.Group != "" {
			e.Errorf("the group of a single snapshot is %q", single.Group)
		}
		if one, two := e.group("one", a.ID, b.ID), e.group("two", a.ID, b.ID); one[0].Group == two[0].Group {
			e.Errorf("two groups share the id %q", one[0].Group)
		}
	})
	h.groups(t, "each of a group can be restored by itself", func(e *env, a, b cloud.Volume) {
		for i, snap := range e.group("group", a.ID, b.ID) {
			req := e.request(fmt.Sprintf("restored-%d", i))
			req.Source.Snapshot = snap.ID
			if vol := e.create(req); vol.Source.Snapshot != snap.ID {
				e.Errorf("restored from %s: %+v", snap.ID, vol)
			}
		}
	})
	h.testGroupNames(t)
	h.testRefusedGroups(t)
	h.testCutGroups(t)
}

func (h Harness) testGroupNames(t *testing.T) {
	h.groups(t, "groups and single snapshots share their names", func(e *env, a, b cloud.Volume) {
		single, group := e.snapshot("single", a.ID), e.group("group", a.ID, b.ID)
		for what, req := range map[string]cloud.CreateSnapshotsRequest{
			"a group of one under a single snapshot's name": {Name: "single", Volumes: []cloud.VolumeID{a.ID}, Group: true},
			"a single snapshot under a group's name":        {Name: "group", Volumes: []cloud.VolumeID{a.ID}},
			"a part of the group":                           {Name: "group", Volumes: []cloud.VolumeID{b.ID}, Group: true},
			"more than the group":                           {Name: "group", Volumes: []cloud.VolumeID{a.ID, b.ID, e.volume("c").ID}, Group: true},
			"another group":                                 {Name: "group", Volumes: []cloud.VolumeID{a.ID, e.volume("d").ID}, Group: true},
		} {
			_, err := until(e, func() ([]cloud.Snapshot, error) { return e.c.CreateSnapshots(e.Context(), req) })
			e.want(err, "CreateSnapshots of "+what, fault.Conflict)
		}
		e.snapshotsLeft(single.ID, group[0].ID, group[1].ID)
	})
	h.groups(t, "a group is found by its request name, and what still exists of it", func(e *env, a, b cloud.Volume) {
		group := e.group("group", a.ID, b.ID)
		e.snapshot("unwanted", a.ID)
		e.found("group", group...)
		if e.h.Idempotent {
			req := cloud.CreateSnapshotsRequest{Name: "group", Volumes: []cloud.VolumeID{b.ID, a.ID}, Group: true}
			if again, err := e.settleSnapshots(req); err != nil || !sameSnapshots(again, group[1], group[0]) {
				e.Errorf("the same group again, in another order = %+v, %v, want %+v in that order", again, err, group)
			}
		}
		e.ok(e.c.DeleteSnapshot(e.Context(), group[0].ID), "DeleteSnapshot of one of a group")
		e.found("group", group[1])
		e.ok(e.c.DeleteSnapshot(e.Context(), group[1].ID), "DeleteSnapshot of the last of a group")
		_, err := e.c.FindSnapshots(e.Context(), "group")
		e.want(err, "FindSnapshots of a group that is gone", fault.NotFound)
	})
}

func (h Harness) testRefusedGroups(t *testing.T) {
	h.groups(t, "fault.NotFound when one of the volumes does not exist, and nothing is left behind", func(e *env, a, b cloud.Volume) {
		e.ok(e.c.DeleteVolume(e.Context(), b.ID), "DeleteVolume")
		for _, of := range [][]cloud.VolumeID{{a.ID, b.ID}, {b.ID, a.ID}} {
			_, err := e.c.CreateSnapshots(e.Context(), cloud.CreateSnapshotsRequest{Name: "half", Volumes: of, Group: true})
			e.want(err, "CreateSnapshots of a volume that is gone", fault.NotFound)
		}
		e.noSnapshots("half")
	})
	h.groups(t, "fault.Precondition when the volumes cannot be snapshotted at one instant now, and nothing is left behind", func(e *env, a, b cloud.Volume) {
		if h.Unfit == nil {
			return // every volume can be snapshotted at any time
		}
		fit := h.Unfit(e.T, b.ID)
		for _, of := range [][]cloud.VolumeID{{a.ID, b.ID}, {b.ID, a.ID}} {
			_, err := e.c.CreateSnapshots(e.Context(), cloud.CreateSnapshotsRequest{Name: "unfit", Volumes: of, Group: true})
			e.want(err, "CreateSnapshots of an unfit volume", fault.Precondition)
		}
		e.noSnapshots("unfit")
		fit()
		e.group("unfit", a.ID, b.ID)
	})
	h.snapshots(t, "fault.InvalidArgument for no volume, for one that is named twice, and for several without Group", func(e *env, vol cloud.Volume) {
		other := e.volume("other")
		requests := map[string]cloud.CreateSnapshotsRequest{
			"no volume":             {Name: "wrong"},
			"several without Group": {Name: "wrong", Volumes: []cloud.VolumeID{vol.ID, other.ID}},
		}
		if e.caps.Groups {
			requests["no volume in a group"] = cloud.CreateSnapshotsRequest{Name: "wrong", Group: true}
			requests["one volume twice"] = cloud.CreateSnapshotsRequest{Name: "wrong", Volumes: []cloud.VolumeID{vol.ID, vol.ID}, Group: true}
		}
		for what, req := range requests {
			_, err := e.c.CreateSnapshots(e.Context(), req)
			e.want(err, "CreateSnapshots with "+what, fault.InvalidArgument)
		}
		e.noSnapshots("wrong")
	})
}

func (h Harness) testCutGroups(t *testing.T) {
	h.groups(t, "a group that is cut off anywhere is one whole group when it is repeated", func(e *env, a, b cloud.Volume) {
		var want []cloud.SnapshotID
		name := func(n int) string { return fmt.Sprintf("cut-%d", n) }
		e.ended(func(ctx context.Context, n int) error {
			_, err := e.c.CreateSnapshots(ctx, cloud.CreateSnapshotsRequest{Name: name(n), Volumes: []cloud.VolumeID{a.ID, b.ID}, Group: true})
			return err
		}, func(n int, err error) {
			_, findErr := e.c.FindSnapshots(e.Context(), name(n))
			e.sent(err, findErr == nil, "CreateSnapshots")
			for _, snap := range e.group(name(n), a.ID, b.ID) {
				want = append(want, snap.ID)
			}
		})
		e.snapshotsLeft(want...)
	})
	h.groups(t, "many creates of one group at once make one group", func(e *env, a, b cloud.Volume) {
		var mu sync.Mutex
		made := map[cloud.GroupID]bool{}
		req := cloud.CreateSnapshotsRequest{Name: "popular", Volumes: []cloud.VolumeID{a.ID, b.ID}, Group: true}
		e.together(func(int) {
			snaps, err := e.c.CreateSnapshots(e.Context(), req)
			if err != nil {
				if !e.h.Idempotent && fault.Of(err) == fault.Conflict {
					return
				}
				e.want(err, "CreateSnapshots among many", fault.Busy, fault.Unavailable, fault.Uncertain)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			made[snaps[0].Group] = true
		})
		group := e.group("popular", a.ID, b.ID)
		delete(made, group[0].Group)
		if len(made) > 0 {
			e.Errorf("others than %s were made too: %v", group[0].Group, made)
		}
		e.snapshotsLeft(group[0].ID, group[1].ID)
	})
}

// groups runs a subtest where groups can be made, and demands fault.Unsupported elsewhere.
func (h Harness) groups(t *testing.T, sentence string, test func(e *env, a, b cloud.Volume)) {
	t.Helper()
	h.check(t, sentence, func(e *env) {
		a, b := e.volume("a"), e.volume("b")
		if e.caps.Groups {
			test(e, a, b)
			return
		}
		_, err := e.c.CreateSnapshots(e.Context(), cloud.CreateSnapshotsRequest{Name: "g", Volumes: []cloud.VolumeID{a.ID, b.ID}, Group: true})
		e.want(err, "CreateSnapshots of a group", fault.Unsupported)
		if e.caps.Snapshots {
			e.noSnapshots("g")
		}
	})
}

// found fails the test unless exactly these are found under the name, in any order.
func (e *env) found(name string, want ...cloud.Snapshot) {
	e.Helper()
	byID := func(a, b cloud.Snapshot) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	}
	got, err := e.c.FindSnapshots(e.Context(), name)
	if err != nil || !sameSnapshots(slices.SortedFunc(slices.Values(got), byID), slices.SortedFunc(slices.Values(want), byID)...) {
		e.Errorf("FindSnapshots(%q) = %+v, %v, want %+v", name, got, err, want)
	}
}

// noSnapshots fails the test if there is any snapshot at all.
func (e *env) noSnapshots(name string) {
	e.Helper()
	_, err := e.c.FindSnapshots(e.Context(), name)
	e.want(err, "FindSnapshots of what was refused", fault.NotFound)
	e.snapshotsLeft()
}
