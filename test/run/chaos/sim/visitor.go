package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
)

// lookTimeout is how long a visitor waits for an answer.
const lookTimeout = 30 * time.Second

// look sends the calls that only read, about one volume.
func (s *sim) look(a *actor, number int) {
	c := get(s, func() *claim { return s.claims[number] })
	if c == nil || get(s, func() bool { return c.pv == nil || c.deleting }) {
		return
	}
	id := string(c.pv.id)
	ask := func(method string, do send, got learn) {
		_ = a.call(plan.Visitor, method, c.name, lookTimeout, do, got)
	}
	ask("ControllerGetVolume", calling(csi.ControllerClient.ControllerGetVolume, &csi.ControllerGetVolumeRequest{VolumeId: id}), func(m proto.Message, _ bool) {
		if got := m.(*csi.ControllerGetVolumeResponse).GetVolume().GetVolumeId(); got != id {
			s.wrong(Unequal, "ControllerGetVolume %s answered %s", id, got)
		}
	})
	ask("ValidateVolumeCapabilities", calling(csi.ControllerClient.ValidateVolumeCapabilities, &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId: id, VolumeContext: c.pv.context, VolumeCapabilities: []*csi.VolumeCapability{capability()},
	}), func(m proto.Message, _ bool) {
		if got := m.(*csi.ValidateVolumeCapabilitiesResponse); got.GetConfirmed() == nil {
			s.wrong(Unequal, "ValidateVolumeCapabilities %s does not confirm what it was created with: %s", id, got.GetMessage())
		}
	})
	if s.plan.Snapshots {
		a.lookAtSnapshots(c, ask)
	}
}

// lookAtSnapshots lists those of a claim's volume and all, and gets each of them.
func (a *actor) lookAtSnapshots(c *claim, ask func(method string, do send, got learn)) {
	s, id := a.s, string(c.pv.id)
	ask("ListSnapshots", calling(csi.ControllerClient.ListSnapshots, &csi.ListSnapshotsRequest{SourceVolumeId: id}), func(m proto.Message, _ bool) {
		for _, e := range m.(*csi.ListSnapshotsResponse).GetEntries() {
			if e.GetSnapshot().GetSourceVolumeId() != id {
				s.wrong(Unequal, "ListSnapshots of %s shows one of %s", id, e.GetSnapshot().GetSourceVolumeId())
			}
		}
	})
	ask("ListSnapshots all", calling(csi.ControllerClient.ListSnapshots, &csi.ListSnapshotsRequest{MaxEntries: 2}), func(proto.Message, bool) {})
	for _, n := range get(s, func() []int { return slices.Sorted(maps.Keys(s.snapshots)) }) {
		if sn := get(s, func() *snap { return s.snapshots[n] }); sn.of == c && get(s, func() bool { return sn.id != "" }) {
			ask(fmt.Sprint("GetSnapshot ", n), calling(csi.ControllerClient.GetSnapshot, &csi.GetSnapshotRequest{SnapshotId: string(sn.id)}), func(m proto.Message, _ bool) { s.checkSnapshot(sn, m.(*csi.GetSnapshotResponse).GetSnapshot()) })
		}
	}
}
