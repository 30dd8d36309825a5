package controller_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestPublishAndUnpublish(t *testing.T) {
	r := start(t, memory.Config{})
	vol := r.make(t, "v")
	good := func() *csi.ControllerPublishVolumeRequest {
		return &csi.ControllerPublishVolumeRequest{
			VolumeId: vol.GetVolumeId(), NodeId: "node-1", VolumeCapability: filesystem(), VolumeContext: vol.GetVolumeContext(),
		}
	}
	want := r.names.EncodePublishContext(driver.PublishContext{DeviceName: vol.GetVolumeId(), Serial: vol.GetVolumeId(), Size: 2 * gib})
	for range 2 {
		answer, err := r.ControllerPublishVolume(ctxOf(t), good())
		if err != nil || !proto.Equal(answer, &csi.ControllerPublishVolumeResponse{PublishContext: want}) {
			t.Fatalf("ControllerPublishVolume = %v, %v, want %v", answer, err, want)
		}
	}
	for name, tc := range map[string]struct {
		change func(*csi.ControllerPublishVolumeRequest)
		code   codes.Code
		says   string
	}{
		"no volume id":       {func(q *csi.ControllerPublishVolumeRequest) { q.VolumeId = "" }, codes.InvalidArgument, "volume_id"},
		"no node id":         {func(q *csi.ControllerPublishVolumeRequest) { q.NodeId = "" }, codes.InvalidArgument, "node_id"},
		"a hostile node id":  {func(q *csi.ControllerPublishVolumeRequest) { q.NodeId = "../n" }, codes.InvalidArgument, "node_id"},
		"a node id too long": {func(q *csi.ControllerPublishVolumeRequest) { q.NodeId = strings.Repeat("n", 257) }, codes.InvalidArgument, "node_id"},
		"no capability":      {func(q *csi.ControllerPublishVolumeRequest) { q.VolumeCapability = nil }, codes.InvalidArgument, "volume_capability"},
		"read-only":          {func(q *csi.ControllerPublishVolumeRequest) { q.Readonly = true }, codes.InvalidArgument, "readonly"},
		"a context that lies": {func(q *csi.ControllerPublishVolumeRequest) {
			q.VolumeContext = r.names.EncodeVolumeContext(driver.VolumeContext{Size: -1})
		}, codes.InvalidArgument, "volume_context"},
		"no such volume":       {func(q *csi.ControllerPublishVolumeRequest) { q.VolumeId = "none" }, codes.NotFound, "none"},
		"no such node":         {func(q *csi.ControllerPublishVolumeRequest) { q.NodeId = "none" }, codes.NotFound, "none"},
		"it is on another one": {func(q *csi.ControllerPublishVolumeRequest) { q.NodeId = "node-2" }, codes.FailedPrecondition, "node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			req := good()
			tc.change(req)
			_, err := r.ControllerPublishVolume(ctxOf(t), req)
			wantCode(t, "ControllerPublishVolume", err, tc.code, tc.says)
		})
	}
	attached := func() []cloud.NodeID {
		v, err := r.cloud.GetVolume(t.Context(), cloud.VolumeID(vol.GetVolumeId()))
		must(t, err)
		return v.AttachedTo
	}
	unpublish := func(volume, node string) error {
		_, err := r.ControllerUnpublishVolume(ctxOf(t), &csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: node})
		return err
	}
	wantCode(t, "unpublish without an id", unpublish("", "node-1"), codes.InvalidArgument, "volume_id")
	wantCode(t, "unpublish from a hostile node", unpublish(vol.GetVolumeId(), "../n"), codes.InvalidArgument, "node_id")
	wantCode(t, "unpublish from a node it is not on", unpublish(vol.GetVolumeId(), "node-2"), codes.OK)
	wantCode(t, "unpublish of a volume that is gone", unpublish("none", "node-1"), codes.OK)
	if got := attached(); !slices.Equal(got, []cloud.NodeID{"node-1"}) {
		t.Errorf("the volume is on %v, want node-1", got)
	}
	wantCode(t, "unpublish from wherever it is", unpublish(vol.GetVolumeId(), ""), codes.OK)
	if got := attached(); len(got) > 0 {
		t.Errorf("the volume is on %v, want nowhere", got)
	}
}

// A full node is ResourceExhausted, so that the pod is scheduled to another one (A7).
func TestPublishOnAFullNode(t *testing.T) {
	r := start(t, memory.Config{Slots: 1})
	publish := changes[memory.CallAttach] // to node-1
	wantCode(t, "the first", publish(ctxOf(t), r, r.make(t, "a").GetVolumeId()), codes.OK)
	wantCode(t, "the second", publish(ctxOf(t), r, r.make(t, "b").GetVolumeId()), codes.ResourceExhausted)
}

// An object that certainly does not exist is no error; an object that may exist is one.
func TestRemovingWhatIsNotThere(t *testing.T) {
	r := start(t, memory.Config{})
	account := r.cloud.Account()
	for _, call := range []memory.Call{memory.CallDeleteVolume, memory.CallDetach, memory.CallDeleteSnapshot} {
		account.Arm(call, memory.Refuse(fault.NotFound), memory.Refuse(errors.Join(fault.NotFound, fault.Uncertain)))
		wantCode(t, string(call)+" of what is not there", changes[call](ctxOf(t), r, "v"), codes.OK)
		wantCode(t, string(call)+" of what may be there", changes[call](ctxOf(t), r, "v"), codes.Unavailable)
	}
}

// E3: sizes at, below and above the limits; a repeat is OK; nothing shrinks.
func TestExpandSizes(t *testing.T) {
	r := start(t, memory.Config{})
	id := r.make(t, "v").GetVolumeId()
	steps := []struct {
		name            string
		required, limit int64
		code            codes.Code
		want            int64
	}{
		{"below the present size", gib, 0, codes.OK, 2 * gib},
		{"at the present size", 2 * gib, 0, codes.OK, 2 * gib},
		{"one byte more is a whole step", 2*gib + 1, 0, codes.OK, 3 * gib},
		{"the same again", 2*gib + 1, 0, codes.OK, 3 * gib},
		{"a limit between two steps", 3*gib + 1, 4*gib - 1, codes.OutOfRange, 3 * gib},
		{"only a limit, above the present size", 0, 5 * gib, codes.OK, 3 * gib},
		{"only a limit, below the present size", 0, 2 * gib, codes.OutOfRange, 3 * gib},
		{"a limit below the present size", gib, 2 * gib, codes.OutOfRange, 3 * gib},
		{"a limit below the size", 5 * gib, 4 * gib, codes.OutOfRange, 3 * gib},
		{"one byte above the largest", 100*gib + 1, 0, codes.OutOfRange, 3 * gib},
		{"the largest int64", 1<<63 - 1, 0, codes.OutOfRange, 3 * gib},
		{"a negative size", -1, 0, codes.InvalidArgument, 3 * gib},
		{"a negative limit", gib, -1, codes.InvalidArgument, 3 * gib},
		{"neither size nor limit", 0, 0, codes.InvalidArgument, 3 * gib},
		{"the largest", 100 * gib, 100 * gib, codes.OK, 100 * gib},
	}
	for _, step := range steps {
		answer, err := r.ControllerExpandVolume(ctxOf(t), &csi.ControllerExpandVolumeRequest{
			VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: step.required, LimitBytes: step.limit},
		})
		wantCode(t, step.name, err, step.code)
		if err == nil && answer.GetCapacityBytes() != step.want {
			t.Errorf("%s: %d bytes, want %d", step.name, answer.GetCapacityBytes(), step.want)
		}
		if v, err := r.cloud.GetVolume(t.Context(), cloud.VolumeID(id)); err != nil || int64(v.Size) != step.want {
			t.Errorf("%s: the cloud has %d bytes, %v, want %d", step.name, v.Size, err, step.want)
		}
	}
	expand := func(req *csi.ControllerExpandVolumeRequest) error {
		_, err := r.ControllerExpandVolume(ctxOf(t), req)
		return err
	}
	more := &csi.CapacityRange{RequiredBytes: 4 * gib}
	wantCode(t, "no id", expand(&csi.ControllerExpandVolumeRequest{CapacityRange: more}), codes.InvalidArgument, "volume_id")
	wantCode(t, "no range", expand(&csi.ControllerExpandVolumeRequest{VolumeId: id}), codes.InvalidArgument, "capacity_range")
	wantCode(t, "no such volume", expand(&csi.ControllerExpandVolumeRequest{VolumeId: "none", CapacityRange: more}), codes.NotFound)
	wantCode(t, "a bad capability", expand(&csi.ControllerExpandVolumeRequest{
		VolumeId: id, CapacityRange: more, VolumeCapability: &csi.VolumeCapability{},
	}), codes.InvalidArgument, "volume_capability")
}

// P5: pages are complete, and a token that is not of the list is Aborted.
func TestListVolumes(t *testing.T) {
	r := start(t, memory.Config{})
	want := map[string]bool{}
	for _, name := range []string{"a", "b", "c"} {
		want[r.make(t, name).GetVolumeId()] = true
	}
	id := r.make(t, "attached").GetVolumeId()
	want[id] = true
	if _, err := r.cloud.Attach(t.Context(), cloud.VolumeID(id), "node-2"); err != nil {
		t.Fatal(err)
	}
	got, token := map[string]bool{}, ""
	for page := 0; page == 0 || token != ""; page++ {
		answer, err := r.ListVolumes(ctxOf(t), &csi.ListVolumesRequest{MaxEntries: 3, StartingToken: token})
		if err != nil || len(answer.GetEntries()) > 3 || page > 2 {
			t.Fatalf("ListVolumes = %v, %v", answer, err)
		}
		for _, e := range answer.GetEntries() {
			got[e.GetVolume().GetVolumeId()] = true
			nodes := e.GetStatus().GetPublishedNodeIds()
			if e.GetVolume().GetVolumeId() == id != slices.Equal(nodes, []string{"node-2"}) {
				t.Errorf("%s is on %v", e.GetVolume().GetVolumeId(), nodes)
			}
			if e.GetVolume().GetCapacityBytes() != 2*gib || !proto.Equal(e.GetVolume().GetAccessibleTopology()[0], topology("zone-a")[0]) {
				t.Errorf("ListVolumes has %v", e)
			}
		}
		token = answer.GetNextToken()
	}
	if len(got) != len(want) {
		t.Errorf("ListVolumes = %v, want %v", got, want)
	}
	_, err := r.ListVolumes(ctxOf(t), &csi.ListVolumesRequest{MaxEntries: -1})
	wantCode(t, "max_entries -1", err, codes.InvalidArgument, "max_entries")
	for _, token := range []string{"nonsense", strings.Repeat("t", 2000)} {
		_, err = r.ListVolumes(ctxOf(t), &csi.ListVolumesRequest{StartingToken: token})
		wantCode(t, "an unknown token", err, codes.Aborted)
	}
	one, err := r.ControllerGetVolume(ctxOf(t), &csi.ControllerGetVolumeRequest{VolumeId: id})
	if err != nil || one.GetVolume().GetVolumeId() != id || !slices.Equal(one.GetStatus().GetPublishedNodeIds(), []string{"node-2"}) {
		t.Errorf("ControllerGetVolume = %v, %v", one, err)
	}
	_, err = r.ControllerGetVolume(ctxOf(t), &csi.ControllerGetVolumeRequest{VolumeId: "none"})
	wantCode(t, "ControllerGetVolume of none", err, codes.NotFound)
}

func TestSnapshots(t *testing.T) {
	r := start(t, memory.Config{})
	id, other := r.make(t, "v").GetVolumeId(), r.make(t, "w").GetVolumeId()
	answer, err := r.CreateSnapshot(ctxOf(t), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id, Parameters: map[string]string{
		"tags": "a=b", "csi.storage.k8s.io/volumesnapshot/name": "nightly",
	}})
	snap := answer.GetSnapshot()
	if err != nil || snap.GetSourceVolumeId() != id || !snap.GetReadyToUse() || snap.GetSizeBytes() != 2*gib || snap.GetCreationTime().AsTime().Year() < 2000 {
		t.Fatalf("CreateSnapshot = %v, %v", answer, err)
	}
	for name, tc := range map[string]struct {
		req  *csi.CreateSnapshotRequest
		code codes.Code
		says string
	}{
		"no name":              {&csi.CreateSnapshotRequest{SourceVolumeId: id}, codes.InvalidArgument, "name"},
		"no volume":            {&csi.CreateSnapshotRequest{Name: "x"}, codes.InvalidArgument, "source_volume_id"},
		"a hostile volume":     {&csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: "a/../b"}, codes.InvalidArgument, "source_volume_id"},
		"no such volume":       {&csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: "none"}, codes.NotFound, ""},
		"an unknown parameter": {&csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: id, Parameters: map[string]string{"q": ""}}, codes.InvalidArgument, "known are"},
		"a place":              {&csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: id, AccessibilityRequirements: &csi.TopologyRequirement{}}, codes.InvalidArgument, "accessibility_requirements"},
		"the name of another":  {&csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: other}, codes.AlreadyExists, ""},
	} {
		_, err := r.CreateSnapshot(ctxOf(t), tc.req)
		wantCode(t, name, err, tc.code, tc.says)
	}
	for name, tc := range map[string]struct {
		req  *csi.ListSnapshotsRequest
		want int
	}{
		"all":                          {&csi.ListSnapshotsRequest{}, 1},
		"of the volume":                {&csi.ListSnapshotsRequest{SourceVolumeId: id}, 1},
		"of another volume":            {&csi.ListSnapshotsRequest{SourceVolumeId: other}, 0},
		"of a volume that is gone":     {&csi.ListSnapshotsRequest{SourceVolumeId: "none"}, 0},
		"by id":                        {&csi.ListSnapshotsRequest{SnapshotId: snap.GetSnapshotId()}, 1},
		"by id, of another volume":     {&csi.ListSnapshotsRequest{SnapshotId: snap.GetSnapshotId(), SourceVolumeId: other}, 0},
		"by an id that does not exist": {&csi.ListSnapshotsRequest{SnapshotId: "none"}, 0},
	} {
		list, err := r.ListSnapshots(ctxOf(t), tc.req)
		if err != nil || len(list.GetEntries()) != tc.want {
			t.Errorf("ListSnapshots %s = %v, %v, want %d", name, list, err, tc.want)
		}
	}
	_, err = r.ListSnapshots(ctxOf(t), &csi.ListSnapshotsRequest{MaxEntries: -1})
	wantCode(t, "max_entries -1", err, codes.InvalidArgument, "max_entries")
	_, err = r.ListSnapshots(ctxOf(t), &csi.ListSnapshotsRequest{StartingToken: "nonsense"})
	wantCode(t, "an unknown token", err, codes.Aborted)
	_, err = r.ListSnapshots(ctxOf(t), &csi.ListSnapshotsRequest{SnapshotId: "../s"})
	wantCode(t, "a hostile id", err, codes.InvalidArgument, "snapshot_id")
	got, err := r.GetSnapshot(ctxOf(t), &csi.GetSnapshotRequest{SnapshotId: snap.GetSnapshotId()})
	if err != nil || !proto.Equal(got.GetSnapshot(), snap) {
		t.Errorf("GetSnapshot = %v, %v, want %v", got, err, snap)
	}
	for range 2 {
		if _, err := r.DeleteSnapshot(ctxOf(t), &csi.DeleteSnapshotRequest{SnapshotId: snap.GetSnapshotId()}); err != nil {
			t.Errorf("DeleteSnapshot: %v", err)
		}
	}
	_, err = r.DeleteSnapshot(ctxOf(t), &csi.DeleteSnapshotRequest{SnapshotId: "../s"})
	wantCode(t, "DeleteSnapshot of a hostile id", err, codes.InvalidArgument, "snapshot_id")
	_, err = r.GetSnapshot(ctxOf(t), &csi.GetSnapshotRequest{SnapshotId: snap.GetSnapshotId()})
	wantCode(t, "GetSnapshot of none", err, codes.NotFound)
}

func TestGetCapacity(t *testing.T) {
	r := start(t, memory.Config{Space: 10 * cloud.GiB})
	r.make(t, "two GiB in zone-a")
	// The provisioner passes a class on as it is here, with what it takes out for a CreateVolume.
	encrypted := map[string]string{
		"luks": "true", "csi.storage.k8s.io/fstype": "xfs",
		"csi.storage.k8s.io/node-stage-secret-name": "${pvc.name}-key", "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}",
	}
	for name, tc := range map[string]struct {
		req        *csi.GetCapacityRequest
		free, most int64
	}{
		"the backend's own place":     {&csi.GetCapacityRequest{}, 8 * gib, 8 * gib},
		"a place with room":           {&csi.GetCapacityRequest{AccessibleTopology: topology("zone-b")[0]}, 10 * gib, 10 * gib},
		"a place that does not exist": {&csi.GetCapacityRequest{AccessibleTopology: topology("mars")[0]}, 0, 0},
		"a place of another driver":   {&csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{Segments: map[string]string{"a": "b"}}}, 0, 0},
		"an encrypted class":          {&csi.GetCapacityRequest{Parameters: encrypted}, 8 * gib, 8 * gib},
	} {
		answer, err := r.GetCapacity(ctxOf(t), tc.req)
		if err != nil || answer.GetAvailableCapacity() != tc.free || answer.GetMaximumVolumeSize().GetValue() != tc.most ||
			answer.GetMinimumVolumeSize().GetValue() != gib {
			t.Errorf("GetCapacity of %s = %v, %v, want %d, at most %d", name, answer, err, tc.free, tc.most)
		}
	}
	_, err := r.GetCapacity(ctxOf(t), &csi.GetCapacityRequest{Parameters: map[string]string{"x": ""}})
	wantCode(t, "an unknown parameter", err, codes.InvalidArgument, "known are")
	_, err = r.GetCapacity(ctxOf(t), &csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{{}}})
	wantCode(t, "a bad capability", err, codes.InvalidArgument, "volume_capabilities[0]")
	_, err = r.GetCapacity(ctxOf(t), &csi.GetCapacityRequest{AccessibleTopology: topology("../x")[0]})
	wantCode(t, "a place that is no label", err, codes.InvalidArgument, "accessible_topology")
}
