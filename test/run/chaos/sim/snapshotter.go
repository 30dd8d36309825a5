package sim

import (
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
)

// snapshotTimeout is --timeout of the snapshotter.
const snapshotTimeout = time.Minute

// snapshot is the life of one snapshot with the snapshot controller and external-snapshotter.
func (a *actor) snapshot(sn *snap) {
	s := a.s
	released := false
	release := func() {
		if !released {
			released = true
			s.set(func() { sn.of.held-- })
		}
	}
	defer s.set(func() { sn.gone = true })
	defer release()
	s.until(func() bool { return sn.of.pv != nil || sn.of.gone || !sn.of.wanted || !sn.wanted })
	if get(s, func() bool { return sn.of.pv == nil }) {
		return
	}
	for failures := 0; ; failures++ {
		if !a.think() || s.life.Err() != nil {
			return
		}
		if get(s, func() bool { return !sn.wanted && !sn.pending && sn.id == "" }) {
			s.hist.add(a.name, "forgets the snapshot: it is deleted and nothing is pending")
			return
		}
		if get(s, func() bool { return sn.id != "" && (sn.ready || !sn.wanted) }) {
			break
		}
		s.set(func() { sn.pending = true })
		if err := a.takeSnapshot(sn); err != nil {
			pending := !finalForSnapshots(err)
			s.set(func() { sn.pending = pending })
		} else {
			failures = 0
		}
		a.backoff(failures, never)
	}
	release()
	s.until(func() bool { return !sn.wanted && sn.held == 0 })
	a.dropSnapshot(sn)
}

// finalForSnapshots is isCSIFinalError of external-snapshotter's pkg/sidecar-controller.
func finalForSnapshots(err error) bool {
	return !inBackground(err) && status.Code(err) != codes.ResourceExhausted
}

func (a *actor) takeSnapshot(sn *snap) error {
	s := a.s
	s.set(func() {
		if sn.sent.IsZero() {
			sn.sent = time.Now()
		}
	})
	req := &csi.CreateSnapshotRequest{Name: sn.name, SourceVolumeId: string(sn.of.pv.id)}
	return a.call(plan.Snapshotter, "CreateSnapshot", sn.name, snapshotTimeout,
		calling(csi.ControllerClient.CreateSnapshot, req),
		func(m proto.Message, mine bool) {
			got := m.(*csi.CreateSnapshotResponse).GetSnapshot()
			s.checkSnapshot(sn, got)
			if mine {
				sn.id, sn.pending = cloud.SnapshotID(got.GetSnapshotId()), false
				sn.size = cloud.Bytes(got.GetSizeBytes())
				sn.ready = sn.ready || got.GetReadyToUse()
			}
		})
}

func (a *actor) dropSnapshot(sn *snap) {
	s := a.s
	req := &csi.DeleteSnapshotRequest{SnapshotId: string(sn.id)}
	for failures := 0; a.think() && s.life.Err() == nil; failures++ {
		err := a.call(plan.Snapshotter, "DeleteSnapshot", sn.name, snapshotTimeout,
			calling(csi.ControllerClient.DeleteSnapshot, req),
			func(proto.Message, bool) {
				if _, there := s.world.Truth().Snapshots[sn.id]; there {
					s.wrong(Leaked, "DeleteSnapshot %s succeeded and it is still there", sn.name)
				}
			})
		if err == nil {
			return
		}
		a.backoff(failures, never)
	}
}
