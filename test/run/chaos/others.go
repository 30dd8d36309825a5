package main

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// The timeouts of the other sidecars.
const (
	resizeTimeout   = 2 * time.Minute
	snapshotTimeout = time.Minute
	lookTimeout     = 30 * time.Second
)

// resize is external-resizer's life with one claim.
func (a *actor) resize(c *claim) {
	s := a.s
	failures := 0
	for s.until(func() bool { return c.gone || c.deleting || c.pv != nil && c.goal > c.pv.size && c.wanted }) {
		if !a.think() || get(s, func() bool { return c.gone || c.deleting }) {
			return
		}
		goal := get(s, func() cloud.Bytes { return c.goal })
		req := &csi.ControllerExpandVolumeRequest{
			VolumeId: string(c.pv.id), CapacityRange: &csi.CapacityRange{RequiredBytes: int64(goal)}, VolumeCapability: capability(),
		}
		err := a.call(Resizer, "ControllerExpandVolume", c.name, resizeTimeout,
			func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
				return to.ControllerExpandVolume(ctx, req)
			},
			func(m proto.Message, mine bool) {
				size := cloud.Bytes(m.(*csi.ControllerExpandVolumeResponse).GetCapacityBytes())
				s.checkGrown(c, goal, size)
				if mine {
					c.pv.size = max(c.pv.size, size)
				}
			})
		if err == nil {
			failures = 0
			continue
		}
		failures++
		a.backoff(failures, func() bool { return !c.wanted || c.deleting })
	}
}

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
	return a.call(Snapshotter, "CreateSnapshot", sn.name, snapshotTimeout,
		func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
			return to.CreateSnapshot(ctx, req)
		},
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
		err := a.call(Snapshotter, "DeleteSnapshot", sn.name, snapshotTimeout,
			func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
				return to.DeleteSnapshot(ctx, req)
			},
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

// look sends the calls that only read, about one volume.
func (s *sim) look(a *actor, number int) {
	c := get(s, func() *claim { return s.claims[number] })
	if c == nil || get(s, func() bool { return c.pv == nil || c.deleting }) {
		return
	}
	id := string(c.pv.id)
	ask := func(method string, do send, got learn) { _ = a.call(Visitor, method, c.name, lookTimeout, do, got) }
	ask("ControllerGetVolume", func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
		return to.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: id})
	}, func(m proto.Message, _ bool) {
		if got := m.(*csi.ControllerGetVolumeResponse).GetVolume().GetVolumeId(); got != id {
			s.wrong(Unequal, "ControllerGetVolume %s answered %s", id, got)
		}
	})
	ask("ValidateVolumeCapabilities", func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
		return to.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{
			VolumeId: id, VolumeContext: c.pv.context, VolumeCapabilities: []*csi.VolumeCapability{capability()},
		})
	}, func(m proto.Message, _ bool) {
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
	ask("ListSnapshots", func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
		return to.ListSnapshots(ctx, &csi.ListSnapshotsRequest{SourceVolumeId: id})
	}, func(m proto.Message, _ bool) {
		for _, e := range m.(*csi.ListSnapshotsResponse).GetEntries() {
			if e.GetSnapshot().GetSourceVolumeId() != id {
				s.wrong(Unequal, "ListSnapshots of %s shows one of %s", id, e.GetSnapshot().GetSourceVolumeId())
			}
		}
	})
	ask("ListSnapshots all", func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
		return to.ListSnapshots(ctx, &csi.ListSnapshotsRequest{MaxEntries: 2})
	}, func(proto.Message, bool) {})
	for _, n := range get(s, func() []int { return sortedKeys(s.snapshots) }) {
		if sn := get(s, func() *snap { return s.snapshots[n] }); sn.of == c && get(s, func() bool { return sn.id != "" }) {
			ask(fmt.Sprint("GetSnapshot ", n), func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
				return to.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: string(sn.id)})
			}, func(m proto.Message, _ bool) { s.checkSnapshot(sn, m.(*csi.GetSnapshotResponse).GetSnapshot()) })
		}
	}
}
