package main

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// settled is how long after its end a call may still reach the cloud.
const settled = 2 * time.Minute

// askAgain sends a request that was answered long ago once more, as a sidecar does that was restarted before it had
// written the answer down: the answer is the same or an error, and what was answered stays.
func (s *sim) askAgain(a *actor, st Step) {
	if st.Snapshot >= 0 {
		if sn := get(s, func() *snap { return s.snapshots[st.Snapshot] }); sn != nil {
			a.snapshotAgain(sn)
		}
		return
	}
	if c := get(s, func() *claim { return s.claims[st.Volume] }); c != nil {
		a.volumeAgain(c)
	}
}

// volumeAgain asks for a volume again, where names repeat beside an older one of its name: as if a list had not shown
// that when it was made.
func (a *actor) volumeAgain(c *claim) {
	s := a.s
	hold := func() bool {
		if c.pv == nil || c.deleting || !c.wanted || c.copied || c.held > 0 {
			return false
		}
		c.held++
		return true
	}
	if !get(s, hold) {
		return
	}
	defer s.set(func() { c.held-- })
	if id := s.world.Duplicate(c.pv.id); id != "" {
		s.hist.add(a.name, "an older volume %s has the name of %s", id, c.name)
		defer func() {
			for s.life.Err() == nil && !s.world.Remove(id) && a.pause(time.Second, 20*time.Second) {
				continue
			}
		}()
	}
	req := s.createRequest(c)
	_ = a.call(Provisioner, "CreateVolume", c.name, provisionTimeout,
		func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
			return to.CreateVolume(ctx, req)
		},
		func(m proto.Message, _ bool) {
			if id := m.(*csi.CreateVolumeResponse).GetVolume().GetVolumeId(); id != string(c.pv.id) {
				s.wrong(Unequal, "CreateVolume %s answered %s long after %s", c.name, id, c.pv.id)
			}
		})
	a.pause(settled, settled+time.Second)
}

// snapshotAgain asks for a snapshot again.
func (a *actor) snapshotAgain(sn *snap) {
	s := a.s
	hold := func() bool {
		if sn.id == "" || !sn.wanted {
			return false
		}
		sn.held++
		return true
	}
	if !get(s, hold) {
		return
	}
	defer s.set(func() { sn.held-- })
	req := &csi.CreateSnapshotRequest{Name: sn.name, SourceVolumeId: string(sn.of.pv.id)}
	_ = a.call(Snapshotter, "CreateSnapshot", sn.name, snapshotTimeout,
		func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
			return to.CreateSnapshot(ctx, req)
		},
		func(m proto.Message, _ bool) { s.checkSnapshot(sn, m.(*csi.CreateSnapshotResponse).GetSnapshot()) })
	a.pause(settled, settled+time.Second)
}
