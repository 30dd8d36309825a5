package controller_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
)

// group makes a group snapshot.
func (r *rig) group(t *testing.T, name string, volumes ...string) *csi.VolumeGroupSnapshot {
	t.Helper()
	answer, err := r.CreateVolumeGroupSnapshot(ctxOf(t), &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: volumes})
	if err != nil {
		t.Fatalf("CreateVolumeGroupSnapshot(%s): %v", name, err)
	}
	return answer.GetGroupSnapshot()
}

// left returns the ids of all snapshots, sorted.
func (r *rig) left(t *testing.T) (ids []string) {
	t.Helper()
	list, err := r.cloud.ListSnapshots(t.Context(), "", cloud.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Snapshots {
		ids = append(ids, string(s.ID))
	}
	slices.Sort(ids)
	return ids
}

// idsOf returns the ids of a group's snapshots.
func idsOf(g *csi.VolumeGroupSnapshot) (ids []string) {
	for _, s := range g.GetSnapshots() {
		ids = append(ids, s.GetSnapshotId())
	}
	return ids
}

func TestAGroupOfSnapshots(t *testing.T) {
	r := start(t, memory.Config{})
	a, b := r.make(t, "a").GetVolumeId(), r.make(t, "b").GetVolumeId()
	group := r.group(t, "g", b, a)
	snaps := group.GetSnapshots()
	if group.GetGroupSnapshotId() == "" || !group.GetReadyToUse() || len(snaps) != 2 || snaps[0].GetSourceVolumeId() != b || snaps[1].GetSourceVolumeId() != a {
		t.Fatalf("CreateVolumeGroupSnapshot = %v", group)
	}
	for _, snap := range snaps {
		if snap.GetGroupSnapshotId() != group.GetGroupSnapshotId() || !proto.Equal(snap.GetCreationTime(), group.GetCreationTime()) || snap.GetSizeBytes() != 2*gib {
			t.Errorf("a snapshot of %v = %v", group, snap)
		}
		one, err := r.GetSnapshot(ctxOf(t), &csi.GetSnapshotRequest{SnapshotId: snap.GetSnapshotId()})
		if err != nil || !proto.Equal(one.GetSnapshot(), snap) {
			t.Errorf("GetSnapshot = %v, %v, want %v", one, err, snap)
		}
		_, err = r.DeleteSnapshot(ctxOf(t), &csi.DeleteSnapshotRequest{SnapshotId: snap.GetSnapshotId()})
		wantCode(t, "DeleteSnapshot of one of a group", err, codes.InvalidArgument, group.GetGroupSnapshotId(), "DeleteVolumeGroupSnapshot")
	}
	if one := r.group(t, "of one", a); one.GetGroupSnapshotId() == "" || one.GetSnapshots()[0].GetGroupSnapshotId() != one.GetGroupSnapshotId() {
		t.Errorf("a group of one = %v", one)
	} else if _, err := r.DeleteVolumeGroupSnapshot(ctxOf(t), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: one.GetGroupSnapshotId(), SnapshotIds: idsOf(one)}); err != nil {
		t.Errorf("DeleteVolumeGroupSnapshot of one: %v", err)
	}
	if list, err := r.ListSnapshots(ctxOf(t), &csi.ListSnapshotsRequest{SourceVolumeId: a}); err != nil || len(list.GetEntries()) != 1 || !proto.Equal(list.GetEntries()[0].GetSnapshot(), snaps[1]) {
		t.Errorf("ListSnapshots = %v, %v, want %v", list, err, snaps[1])
	}
	got, err := r.GetVolumeGroupSnapshot(ctxOf(t), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: idsOf(group)})
	if err != nil || !proto.Equal(got.GetGroupSnapshot(), group) {
		t.Errorf("GetVolumeGroupSnapshot = %v, %v, want %v", got, err, group)
	}
	for range 2 {
		if _, err := r.DeleteVolumeGroupSnapshot(ctxOf(t), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: idsOf(group)}); err != nil {
			t.Errorf("DeleteVolumeGroupSnapshot: %v", err)
		}
	}
	_, err = r.GetVolumeGroupSnapshot(ctxOf(t), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: idsOf(group)})
	wantCode(t, "GetVolumeGroupSnapshot of what is gone", err, codes.NotFound, group.GetGroupSnapshotId())
	if ids := r.left(t); len(ids) > 0 {
		t.Errorf("left behind: %v", ids)
	}
}

func TestCreateVolumeGroupSnapshotRefuses(t *testing.T) {
	r := start(t, memory.Config{Places: []string{"island"}})
	a, b, busy := r.make(t, "a").GetVolumeId(), r.make(t, "b").GetVolumeId(), r.make(t, "busy").GetVolumeId()
	if err := r.cloud.Account().SetUnfit(cloud.VolumeID(busy), "it cannot be frozen"); err != nil {
		t.Fatal(err)
	}
	group := r.group(t, "taken", a, b)
	for name, tc := range map[string]struct {
		req  *csi.CreateVolumeGroupSnapshotRequest
		code codes.Code
		says string
	}{
		"no name":                     {&csi.CreateVolumeGroupSnapshotRequest{SourceVolumeIds: []string{a}}, codes.InvalidArgument, "name"},
		"no volume":                   {&csi.CreateVolumeGroupSnapshotRequest{Name: "x"}, codes.InvalidArgument, "source_volume_ids"},
		"a hostile volume":            {&csi.CreateVolumeGroupSnapshotRequest{Name: "x", SourceVolumeIds: []string{a, "../b"}}, codes.InvalidArgument, "source_volume_ids[1]"},
		"one volume twice":            {&csi.CreateVolumeGroupSnapshotRequest{Name: "x", SourceVolumeIds: []string{a, b, a}}, codes.InvalidArgument, "source_volume_ids[2]"},
		"an unknown parameter":        {&csi.CreateVolumeGroupSnapshotRequest{Name: "x", SourceVolumeIds: []string{a}, Parameters: map[string]string{"q": ""}}, codes.InvalidArgument, "csi.storage.k8s.io/volumegroupsnapshot/name"},
		"no such volume":              {&csi.CreateVolumeGroupSnapshotRequest{Name: "x", SourceVolumeIds: []string{a, "none"}}, codes.NotFound, "none"},
		"a volume that is not fit":    {&csi.CreateVolumeGroupSnapshotRequest{Name: "x", SourceVolumeIds: []string{a, busy}}, codes.FailedPrecondition, "it cannot be frozen"},
		"a volume of another place":   {&csi.CreateVolumeGroupSnapshotRequest{Name: "x", SourceVolumeIds: []string{a, "island/v"}}, codes.FailedPrecondition, "island"},
		"another set under the name":  {&csi.CreateVolumeGroupSnapshotRequest{Name: "taken", SourceVolumeIds: []string{a, busy}}, codes.AlreadyExists, ""},
		"a name that is a snapshot's": {&csi.CreateVolumeGroupSnapshotRequest{Name: "single", SourceVolumeIds: []string{a}}, codes.AlreadyExists, ""},
	} {
		if name == "a name that is a snapshot's" {
			if _, err := r.CreateSnapshot(ctxOf(t), &csi.CreateSnapshotRequest{Name: "single", SourceVolumeId: a}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := r.CreateVolumeGroupSnapshot(ctxOf(t), tc.req)
		wantCode(t, name, err, tc.code, tc.says)
	}
	if ids := r.left(t); len(ids) != len(group.GetSnapshots())+1 {
		t.Errorf("left are %v, want the group %v and one more", ids, idsOf(group))
	}
}

func TestCreateVolumeGroupSnapshotTakesTheSidecarsMetadata(t *testing.T) {
	r := start(t, memory.Config{})
	_, err := r.CreateVolumeGroupSnapshot(ctxOf(t), &csi.CreateVolumeGroupSnapshotRequest{
		Name: "g", SourceVolumeIds: []string{r.make(t, "a").GetVolumeId()},
		Parameters: map[string]string{
			"tags": "a=b", "csi.storage.k8s.io/volumegroupsnapshot/name": "nightly",
			"csi.storage.k8s.io/volumegroupsnapshot/namespace": "shop", "csi.storage.k8s.io/volumegroupsnapshotcontent/name": "c",
		},
	})
	if err != nil {
		t.Error(err)
	}
}

// A delete or get whose list does not fit the group is refused: OK would leave the rest for ever.
func TestTheIDsHaveToBeThoseOfTheGroup(t *testing.T) {
	r := start(t, memory.Config{Places: []string{"island"}, PageSize: 2})
	a, b := r.make(t, "a").GetVolumeId(), r.make(t, "b").GetVolumeId()
	single, err := r.CreateSnapshot(ctxOf(t), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: a})
	if err != nil {
		t.Fatal(err)
	}
	group, other := r.group(t, "g", a, b), r.group(t, "other", a, b) // each on two pages of the list
	before := r.left(t)
	ids := idsOf(group)
	for name, tc := range map[string]struct {
		group       string
		ids         []string
		get, remove codes.Code
		says        string
	}{
		"no group":                              {"", ids, codes.InvalidArgument, codes.InvalidArgument, "group_snapshot_id"},
		"a hostile group":                       {"../g", ids, codes.InvalidArgument, codes.InvalidArgument, "group_snapshot_id"},
		"a hostile snapshot":                    {group.GetGroupSnapshotId(), []string{ids[0], "../s"}, codes.InvalidArgument, codes.InvalidArgument, "snapshot_ids[1]"},
		"a snapshot twice":                      {group.GetGroupSnapshotId(), []string{ids[0], ids[1], ids[0]}, codes.InvalidArgument, codes.InvalidArgument, "snapshot_ids[2]"},
		"no snapshots":                          {group.GetGroupSnapshotId(), nil, codes.InvalidArgument, codes.InvalidArgument, "lacks"},
		"a part of the group":                   {group.GetGroupSnapshotId(), ids[:1], codes.InvalidArgument, codes.InvalidArgument, ids[1]},
		"a snapshot of another group":           {group.GetGroupSnapshotId(), append([]string{other.GetSnapshots()[0].GetSnapshotId()}, ids...), codes.InvalidArgument, codes.InvalidArgument, other.GetSnapshots()[0].GetSnapshotId()},
		"a snapshot of no group":                {group.GetGroupSnapshotId(), append([]string{single.GetSnapshot().GetSnapshotId()}, ids...), codes.InvalidArgument, codes.InvalidArgument, single.GetSnapshot().GetSnapshotId()},
		"the snapshots of another group":        {group.GetGroupSnapshotId(), idsOf(other), codes.InvalidArgument, codes.InvalidArgument, "lacks"},
		"a group that is not, with others' ids": {"none", ids, codes.InvalidArgument, codes.InvalidArgument, "none"},
		"a group that is not":                   {"none", nil, codes.NotFound, codes.OK, ""},
		"a group that is not, with ids gone":    {"none", []string{"x", "y"}, codes.NotFound, codes.OK, ""},
		"a group of another place":              {"island/g", []string{"island/s"}, codes.NotFound, codes.FailedPrecondition, ""},
	} {
		_, err := r.GetVolumeGroupSnapshot(ctxOf(t), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: tc.group, SnapshotIds: tc.ids})
		wantCode(t, "GetVolumeGroupSnapshot of "+name, err, tc.get, tc.says)
		_, err = r.DeleteVolumeGroupSnapshot(ctxOf(t), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: tc.group, SnapshotIds: tc.ids})
		wantCode(t, "DeleteVolumeGroupSnapshot of "+name, err, tc.remove)
	}
	if after := r.left(t); !slices.Equal(before, after) {
		t.Errorf("left are %v, want %v", after, before)
	}
}

// A delete that was interrupted is finished by its repeat; until then the group is not whole.
func TestDeleteVolumeGroupSnapshotGoesOn(t *testing.T) {
	r := start(t, memory.Config{})
	group := r.group(t, "g", r.make(t, "a").GetVolumeId(), r.make(t, "b").GetVolumeId(), r.make(t, "c").GetVolumeId())
	req := &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: idsOf(group)}
	// The first is deleted and its answer is lost; the repeat loses the connection after the second.
	r.cloud.Account().Arm(memory.CallDeleteSnapshot, memory.LoseAnswer())
	_, err := r.DeleteVolumeGroupSnapshot(ctxOf(t), req)
	wantCode(t, "the delete that is interrupted", err, codes.Unavailable, group.GetGroupSnapshotId())
	_, err = r.GetVolumeGroupSnapshot(ctxOf(t), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: idsOf(group)})
	wantCode(t, "GetVolumeGroupSnapshot of two thirds", err, codes.NotFound, "not whole", group.GetSnapshots()[0].GetSnapshotId())
	if ids := r.left(t); len(ids) != 2 {
		t.Fatalf("left are %v, want two", ids)
	}
	if _, err := r.DeleteVolumeGroupSnapshot(ctxOf(t), req); err != nil {
		t.Errorf("the repeat: %v", err)
	}
	if ids := r.left(t); len(ids) > 0 {
		t.Errorf("left behind: %v", ids)
	}
}

func TestAGroupIsReadyWhenAllOfItIs(t *testing.T) {
	r := start(t, memory.Config{OperationTime: 50 * time.Millisecond})
	group := r.group(t, "g", r.make(t, "a").GetVolumeId(), r.make(t, "b").GetVolumeId())
	if group.GetReadyToUse() || group.GetSnapshots()[0].GetReadyToUse() {
		t.Errorf("the group is ready at once: %v", group)
	}
	req := &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: idsOf(group)}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx := ctxOf(t); ; {
		got, err := r.GetVolumeGroupSnapshot(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if got.GetGroupSnapshot().GetReadyToUse() {
			return
		}
		<-tick.C
	}
}

func TestGroupsWithoutTheCapability(t *testing.T) {
	caps := memory.Full()
	caps.Groups = false
	r := start(t, memory.Config{Capabilities: caps})
	_, err := r.GroupControllerGetCapabilities(ctxOf(t), &csi.GroupControllerGetCapabilitiesRequest{})
	wantCode(t, "GroupControllerGetCapabilities", err, codes.Unimplemented)
	answer, err := csi.NewIdentityClient(r.conn).GetPluginCapabilities(ctxOf(t), &csi.GetPluginCapabilitiesRequest{})
	if err != nil || strings.Contains(answer.String(), "GROUP") || strings.Contains(answer.String(), "SNAPSHOT_ACCESS") {
		t.Errorf("GetPluginCapabilities = %v, %v, want no group service", answer, err)
	}
}
