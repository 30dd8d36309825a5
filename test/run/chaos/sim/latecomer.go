package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

// What comes late: an attacher that was frozen and goes on as if nothing had happened, a provisioner that comes back
// when half-made copies look forgotten, and a sidecar that asks once more for what was answered long ago. For a moment
// after the first two the cloud's lists are often old.

const (
	// settled is how long after its end a call may still reach the cloud.
	settled = 2 * time.Minute
	// frozen is for how long a late call is made: then its machine has been found out.
	frozen = 20 * time.Second
	// forgotten is for how long a volume is not brought back to where a late call takes it off: nothing in the
	// call says which time is meant, so no driver could tell.
	forgotten = 5 * time.Second
	// sweeps is how often a controller removes what looks left over when the provisioner comes back.
	sweeps = 5
)

// lateDetaches is an attacher that was the leader once and does not know better. It goes on a little after some volume
// has come to another machine, and sends every detach that it had still to do, to another controller.
func (s *sim) lateDetaches(a *actor, began time.Time) {
	moved := func() bool {
		for _, c := range s.claims {
			if c.moved.After(began) {
				return true
			}
		}
		return false
	}
	if !s.until(moved) || !a.pause(0, 10*time.Second) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to := (s.lead[plan.Attacher] + 1) % s.plan.Controllers
	s.in.Mark(trouble.Late)
	for _, n := range slices.Sorted(maps.Keys(s.claims)) {
		if c := s.claims[n]; c.mayDetachLate() {
			c.late = c.left
			s.actor(fmt.Sprint("older attacher of ", c.name, " since ", began.UnixNano()), func(a *actor) { a.detachLate(c, to) })
		}
	}
}

// detachLate sends one of them.
func (a *actor) detachLate(c *claim, to int) {
	s, from := a.s, c.late
	node := s.world.Nodes()[from]
	_ = a.once(s.life, try{plan.Attacher, "ControllerUnpublishVolume", fmt.Sprint(c.name, " ", node), frozen, to, false},
		s.unpublishing(c, from), func(proto.Message, bool) { s.checkFree(c, node) })
	a.pause(forgotten, forgotten+time.Second)
	s.set(func() { c.late = -1 })
}

// mayDetachLate says whether there is a detach to repeat, and nobody wants the volume back where it was. The caller
// holds mu.
func (c *claim) mayDetachLate() bool {
	if c.left < 0 || c.late >= 0 || c.deleting || c.byHand != "" {
		return false
	}
	for _, va := range c.vas {
		if va.node == c.left {
			return false
		}
	}
	return true
}

// unpublishing is the call that takes a claim's volume off a machine.
func (s *sim) unpublishing(c *claim, node int) send {
	req := &csi.ControllerUnpublishVolumeRequest{VolumeId: string(c.pv.id), NodeId: string(s.world.Nodes()[node])}
	return calling(csi.ControllerClient.ControllerUnpublishVolume, req)
}

// away takes the provisioner away until what it has left half-made is old. When it comes back and goes on,
// another controller is just about to remove what looks left over.
func (s *sim) away(a *actor) {
	if s.speed != 1 {
		return // programs forget copies only after an hour
	}
	s.set(func() {
		s.absent = true
		s.cancel(plan.Provisioner)
	})
	if !a.pause(plan.LeftOver+time.Minute, plan.LeftOver+2*time.Minute) {
		return
	}
	by := get(s, func() int { return (s.lead[plan.Provisioner] + 1) % s.plan.Controllers })
	s.set(func() { s.absent = false })
	for range sweeps {
		if !a.pause(0, 5*time.Second) {
			return
		}
		s.in.Mark(trouble.Late)
		s.hist.add("sweep", "by controller %d", by)
		if err := s.fleet.Sweep(s.life, by); err != nil {
			s.hist.add("sweep", "by controller %d: %v", by, err)
		}
	}
}

// present waits for as long as the provisioner is away; false when the run is over.
func (s *sim) present() bool { return s.until(func() bool { return !s.absent }) }

// askAgain sends a request that was answered long ago once more, as a sidecar does that was restarted before it had
// written the answer down: the answer is the same or an error, and what was answered stays.
func (s *sim) askAgain(a *actor, st plan.Step) {
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
	_ = a.call(plan.Provisioner, "CreateVolume", c.name, provisionTimeout,
		calling(csi.ControllerClient.CreateVolume, req),
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
	_ = a.call(plan.Snapshotter, "CreateSnapshot", sn.name, snapshotTimeout,
		calling(csi.ControllerClient.CreateSnapshot, req),
		func(m proto.Message, _ bool) { s.checkSnapshot(sn, m.(*csi.CreateSnapshotResponse).GetSnapshot()) })
	a.pause(settled, settled+time.Second)
}
