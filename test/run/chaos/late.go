package main

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// What comes late: an attacher that was frozen and goes on as if nothing had happened, and a provisioner that
// comes back when half-made copies look as if nobody would ask for them again. For a moment after that the cloud's
// lists are often old.

const (
	// frozen is for how long a late call is made: then its machine has been found out.
	frozen = 20 * time.Second
	// forgotten is for how long a volume is not brought back to where a late call takes it off: nothing in the
	// call says which time is meant, so no driver could tell.
	forgotten = 5 * time.Second
	// leftOver is from which age a driver may take a half-made copy to be forgotten. It is longer than a call.
	leftOver = 10 * time.Minute
	// sweeps is how often a controller then removes what looks left over.
	sweeps = 5
	// unlucky is for how long after something late the lists are often old, and unluckily how often.
	unlucky   = 2 * time.Second
	unluckily = .5
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
	to := (s.lead[Attacher] + 1) % s.plan.Controllers
	s.in.mark(Late)
	for _, n := range sortedKeys(s.claims) {
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
	_ = a.once(s.life, try{Attacher, "ControllerUnpublishVolume", fmt.Sprint(c.name, " ", node), frozen, to, false},
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
	return func(ctx context.Context, to csi.ControllerClient) (proto.Message, error) {
		return to.ControllerUnpublishVolume(ctx, req)
	}
}

// away takes the provisioner away until what it has left half-made is old. When it comes back and goes on,
// another controller is just about to remove what looks left over.
func (s *sim) away(a *actor) {
	if s.speed != 1 {
		return // programs forget copies only after an hour
	}
	s.set(func() {
		s.absent = true
		s.cancel(Provisioner)
	})
	if !a.pause(leftOver+time.Minute, leftOver+2*time.Minute) {
		return
	}
	by := get(s, func() int { return (s.lead[Provisioner] + 1) % s.plan.Controllers })
	s.set(func() { s.absent = false })
	for range sweeps {
		if !a.pause(0, 5*time.Second) {
			return
		}
		s.in.mark(Late)
		s.hist.add("sweep", "by controller %d", by)
		if err := s.fleet.sweep(s.life, by); err != nil {
			s.hist.add("sweep", "by controller %d: %v", by, err)
		}
	}
}

// present waits for as long as the provisioner is away; false when the run is over.
func (s *sim) present() bool { return s.until(func() bool { return !s.absent }) }

// sweeper is a backend that removes what broken-off calls have left.
type sweeper interface {
	Sweep(ctx context.Context) error
}

// sweepOf is what the outermost of some backends does that can.
func sweepOf(backends ...cloud.Cloud) func(context.Context) error {
	for _, c := range backends {
		if s, can := c.(sweeper); can {
			return s.Sweep
		}
	}
	return func(context.Context) error { return nil }
}
