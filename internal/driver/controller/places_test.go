package controller_test

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A snapshot that can be restored in one place only reports that place, and is refused if the request needs others.
func TestSnapshotsSayWhereTheyAre(t *testing.T) {
	caps := memory.Full()
	caps.SnapshotZones = true
	r := start(t, memory.Config{Capabilities: caps, Places: []string{"island"}})
	answer, err := csi.NewIdentityClient(r.conn).GetPluginCapabilities(ctxOf(t), &csi.GetPluginCapabilitiesRequest{})
	if err != nil || !strings.Contains(answer.String(), "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS") {
		t.Errorf("GetPluginCapabilities = %v, %v", answer, err)
	}
	id := r.make(t, "v").GetVolumeId() // in zone-a
	for name, tc := range map[string]struct {
		want *csi.TopologyRequirement
		of   string
		code codes.Code
		says string
	}{
		"nowhere in particular":    {nil, id, codes.OK, ""},
		"no entries":               {&csi.TopologyRequirement{}, id, codes.OK, ""},
		"where the volume is":      {&csi.TopologyRequirement{Requisite: topology("zone-b", "zone-a")}, id, codes.OK, ""},
		"elsewhere":                {&csi.TopologyRequirement{Requisite: topology("zone-b")}, id, codes.ResourceExhausted, "zone-a"},
		"a place of no label":      {&csi.TopologyRequirement{Requisite: topology("../x")}, id, codes.InvalidArgument, "requisite[0]"},
		"a volume that is gone":    {&csi.TopologyRequirement{Requisite: topology("zone-a")}, "none", codes.NotFound, "none"},
		"another place's volume":   {&csi.TopologyRequirement{Requisite: topology("zone-a")}, "island/v", codes.FailedPrecondition, "island"},
		"keys of another driver's": {&csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"a": "b"}}}}, id, codes.InvalidArgument, "topology.memory"},
	} {
		made, err := r.CreateSnapshot(ctxOf(t), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: tc.of, AccessibilityRequirements: tc.want})
		wantCode(t, name, err, tc.code, tc.says)
		if got := made.GetSnapshot().GetAccessibleTopology(); tc.code == codes.OK && (len(got) != 1 || !proto.Equal(got[0], topology("zone-a")[0])) {
			t.Errorf("%s: the snapshot is in %v, want zone-a", name, got)
		}
	}
}

// C8: a snapshot that an earlier call has taken is not forgotten because its place cannot be read now.
func TestSnapshotWhosePlaceCannotBeRead(t *testing.T) {
	caps := memory.Full()
	caps.SnapshotZones = true
	r := start(t, memory.Config{Capabilities: caps})
	req := &csi.CreateSnapshotRequest{
		Name: "s", SourceVolumeId: r.make(t, "v").GetVolumeId(), AccessibilityRequirements: &csi.TopologyRequirement{Requisite: topology("zone-a")},
	}
	first, err := r.CreateSnapshot(ctxOf(t), req) // its answer is lost
	wantCode(t, "CreateSnapshot", err, codes.OK)
	for _, refusal := range []error{fault.Denied, fault.PoolUnusable} {
		r.cloud.Account().Arm(memory.CallGetVolume, memory.Refuse(refusal))
		_, err := r.CreateSnapshot(ctxOf(t), req)
		wantCode(t, "CreateSnapshot again", err, codes.Unavailable, "accessibility_requirements")
	}
	if list, err := r.cloud.ListSnapshots(t.Context(), "", cloud.Page{}); err != nil || len(list.Snapshots) != 1 || string(list.Snapshots[0].ID) != first.GetSnapshot().GetSnapshotId() {
		t.Errorf("the snapshots are %v, %v, want the first", list.Snapshots, err)
	}
}

// A restore or clone in a place without the source is ResourceExhausted, so that the provisioner tries another node, and the error
// names the place of the source; nothing is left behind.
func TestACopyOfWhatIsElsewhereNamesThatPlace(t *testing.T) {
	r := start(t, memory.Config{Places: []string{"island"}})
	for name, source := range map[string]*csi.VolumeContentSource{
		"clone": fromVolume("island/v"), "restore": fromSnapshot("island/s"),
	} {
		for _, size := range []*csi.CapacityRange{nil, {RequiredBytes: 3 * gib}} {
			req := request(name)
			req.VolumeContentSource, req.CapacityRange = source, size
			_, err := r.CreateVolume(ctxOf(t), req)
			wantCode(t, name, err, codes.ResourceExhausted, "island")
		}
	}
	_, err := r.DeleteVolume(ctxOf(t), &csi.DeleteVolumeRequest{VolumeId: "island/v"})
	wantCode(t, "DeleteVolume", err, codes.FailedPrecondition, "island")
	_, err = r.DeleteSnapshot(ctxOf(t), &csi.DeleteSnapshotRequest{SnapshotId: "island/s"})
	wantCode(t, "DeleteSnapshot", err, codes.FailedPrecondition, "island")
	if list, err := r.cloud.ListVolumes(t.Context(), cloud.Page{}); err != nil || len(list.Volumes) > 0 {
		t.Errorf("left behind: %v, %v", list.Volumes, err)
	}
}

// C4: a source that the cloud cannot serve, or that is invalid, is refused; it never becomes an empty volume.
func TestEverySourceThatCannotBeServedIsRefused(t *testing.T) {
	none, snapshotsOnly, clonesOnly := small(), small(), small()
	snapshotsOnly.Snapshots, clonesOnly.Clones = true, true
	sources := map[string]*csi.VolumeContentSource{
		"a snapshot":                   fromSnapshot("snap-1"),
		"a volume":                     fromVolume("vol-1"),
		"a snapshot without an id":     fromSnapshot(""),
		"a volume without an id":       fromVolume(""),
		"neither":                      {},
		"a snapshot with a hostile id": fromSnapshot("../snap-1"),
	}
	for cloudName, tc := range map[string]struct {
		caps cloud.Capabilities
		ok   string
	}{
		"a cloud without copies": {none, ""}, "one with snapshots": {snapshotsOnly, "a snapshot"}, "one with clones": {clonesOnly, "a volume"},
	} {
		r := start(t, memory.Config{Capabilities: tc.caps})
		for name, source := range sources {
			want := codes.InvalidArgument
			if name == tc.ok {
				want = codes.NotFound // the cloud can serve it, and it does not exist
			}
			req := request(name)
			req.VolumeContentSource = source
			_, err := r.CreateVolume(ctxOf(t), req)
			wantCode(t, cloudName+": "+name, err, want)
		}
		if list, err := r.cloud.ListVolumes(t.Context(), cloud.Page{}); err != nil || len(list.Volumes) > 0 {
			t.Errorf("%s: left behind: %v, %v", cloudName, list.Volumes, err)
		}
	}
}
