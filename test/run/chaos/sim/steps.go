package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
)

// step does one action. An action whose object is not there, because the step that makes it was left
// out, does nothing.
func (s *sim) step(st plan.Step) {
	switch st.Do {
	case plan.CreateClaim:
		s.createClaim(st)
	case plan.RunPod:
		s.place(st.Volume, st.Node)
	case plan.StopPod:
		s.place(st.Volume, -1)
	case plan.Grow:
		s.grow(st)
	case plan.TakeSnapshot:
		s.takeSnapshot(st)
	case plan.DropSnapshot:
		s.set(func() {
			if sn := s.snapshots[st.Snapshot]; sn != nil {
				sn.wanted = false
			}
		})
	case plan.DeleteClaim:
		s.set(func() {
			if c := s.claims[st.Volume]; c != nil {
				c.place, c.wanted = -1, false
			}
		})
	case plan.Reconcile:
		s.actor(fmt.Sprint("attacher's list at ", st.At), s.reconcile)
	case plan.Look:
		s.actor(fmt.Sprint("visitor at ", st.At), func(a *actor) { s.look(a, st.Volume) })
	case plan.Crash:
		s.crash(st)
	case plan.Lead:
		s.set(func() {
			s.lead[st.Sidecar] = st.Controller
			s.cancel(st.Sidecar) // the old leader ends itself before the new one begins
		})
	case plan.RestartSidecar:
		s.set(func() { s.cancel(st.Sidecar) })
	case plan.AskAgain:
		s.actor(fmt.Sprint("forgetful sidecar at ", st.At), func(a *actor) { s.askAgain(a, st) })
	case plan.Meddle:
		s.actor(fmt.Sprint("meddler at ", st.At), func(a *actor) { s.meddle(a, st) })
	case plan.LateDetach:
		began := time.Now()
		s.actor(fmt.Sprint("older attacher at ", st.At), func(a *actor) { s.lateDetaches(a, began) })
	case plan.Away:
		s.actor(fmt.Sprint("provisioner's machine at ", st.At), s.away)
	case plan.Adopt:
		s.actor("adoption", s.adopt)
	}
}

// cancel ends all calls of a sidecar, in the order in which they began. The caller holds mu.
func (s *sim) cancel(of plan.Sidecar) {
	after := time.Duration(0)
	for _, c := range s.calls {
		if c.sidecar == of {
			after += time.Microsecond // not at one moment, so that a seed repeats
			time.AfterFunc(after, c.cancel)
		}
	}
}

func (s *sim) createClaim(st plan.Step) {
	c := &claim{number: st.Volume, name: claimName(st.Volume), from: st.From, wanted: true, place: -1, left: -1, late: -1}
	c.size = cloud.Bytes(st.Size) * cloud.GiB
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[st.Volume] != nil {
		return
	}
	// A user asks for at least the size of what is copied.
	switch st.From.Kind {
	case plan.Blank:
		c.size += s.world.Least()
	case plan.FromVolume:
		of := s.claims[st.From.Number]
		if of == nil || !of.wanted || of.number == plan.Clash {
			return
		}
		c.size += max(of.size, of.goal)
	case plan.FromSnapshot:
		of := s.snapshots[st.From.Number]
		if of == nil || !of.wanted {
			return
		}
		c.size += of.size
	}
	c.copied = st.From.Kind != plan.Blank
	s.claims[c.number] = c
	s.actor("provisioner "+c.name, func(a *actor) { a.provision(c) })
	s.actor("attach-detach "+c.name, func(a *actor) { a.attachDetach(c) })
	s.actor("resizer "+c.name, func(a *actor) { a.resize(c) })
}

func (s *sim) place(number, node int) {
	s.set(func() {
		if c := s.claims[number]; c != nil && c.wanted && c.number != plan.Clash {
			c.place = node
		}
	})
}

func (s *sim) grow(st plan.Step) {
	s.set(func() {
		if c := s.claims[st.Volume]; c != nil && c.wanted && c.pv != nil {
			c.goal = max(c.goal, c.pv.size) + cloud.Bytes(st.Size)*cloud.GiB
		}
	})
}

func (s *sim) takeSnapshot(st plan.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[st.Volume]
	if c == nil || !c.wanted || c.number == plan.Clash || s.snapshots[st.Snapshot] != nil {
		return
	}
	sn := &snap{number: st.Snapshot, name: fmt.Sprintf("snapshot-%d", st.Snapshot), of: c, size: max(c.size, c.goal), wanted: true}
	if st.Snapshot == plan.Clash {
		sn.name = foreignSnapshot
	}
	s.snapshots[sn.number] = sn
	c.held++ // the cluster keeps a claim until its snapshot is there
	s.actor("snapshotter "+sn.name, func(a *actor) { a.snapshot(sn) })
}

// meddle attaches a free volume by hand, and takes it off again later. Meanwhile nobody else may.
func (s *sim) meddle(a *actor, st plan.Step) {
	node := s.world.Nodes()[st.Node]
	s.mu.Lock()
	c := s.claims[st.Volume]
	if c == nil || c.pv == nil || c.deleting || len(c.vas) > 0 || c.meddled || c.late == st.Node || s.world.Attach(c.pv.id, "", node) != nil {
		s.mu.Unlock()
		return
	}
	c.byHand, c.meddled = node, true
	s.hist.add("meddler", "%s attached to %s by hand", c.name, node)
	s.mu.Unlock()
	for a.pause(20*time.Second, 90*time.Second) {
		if !get(s, func() bool { return s.putBack(c, node) }) {
			return
		}
	}
}

// putBack ends what was done by hand; false when that is over. A volume that the cluster published to this
// machine meanwhile is the cluster's. The caller holds mu.
func (s *sim) putBack(c *claim, node cloud.NodeID) bool {
	if c.byHand == "" {
		return false
	}
	err := s.world.Attach(c.pv.id, node, "")
	if errors.Is(err, fault.Busy) {
		return true // later
	}
	if err != nil {
		s.wrong(Corrupt, "%s was attached to %s by hand and is not there any more: %v", c.name, node, err)
	}
	c.byHand = ""
	s.hist.add("meddler", "%s taken off %s by hand", c.name, node)
	return false
}

// crash arms the end of a controller. One that does nothing is killed all the same, a while later.
func (s *sim) crash(st plan.Step) {
	s.in.ArmCrash(st.Controller, st.Point)
	s.actor(fmt.Sprint("crash at ", st.At), func(a *actor) {
		if a.pause(40*time.Second, 41*time.Second) && s.in.Crashes(st.Controller, st.Point) {
			s.hist.add("crash", "controller %d: killed while it did nothing", st.Controller)
			s.fleet.Kill(st.Controller)
		}
	})
}

// watch starts a controller again after its end, a while later.
func (s *sim) watch(number int) {
	s.actor(fmt.Sprint("kubelet of controller ", number), func(a *actor) {
		for s.until(func() bool { return s.fleet.Client(number) == nil }) {
			s.set(func() { s.crashes++ })
			if !a.pause(time.Second, 8*time.Second) {
				return
			}
			s.hist.add("crash", "controller %d: started again", number)
			if err := s.fleet.Start(number); err != nil {
				s.set(func() { s.wrong(Stuck, "controller %d does not start: %v", number, err) })
				return
			}
		}
	})
}
