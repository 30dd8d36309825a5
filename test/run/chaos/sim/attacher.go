package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
)

// attachTimeout is --timeout of the attacher in the project's manifests.
const attachTimeout = 5 * time.Minute

// attachDetach is Kubernetes' attach-detach controller and the kubelets, for one claim: a volume of one
// writer gets an attachment on another machine only when the one before is gone.
func (a *actor) attachDetach(c *claim) {
	s := a.s
	for s.until(func() bool { return c.gone || len(c.vas) > 0 || c.pv != nil && !c.deleting && c.comes() }) {
		if c.gone || !a.think() {
			return
		}
		s.mu.Lock()
		if len(c.vas) == 0 {
			if c.comes() && !c.deleting {
				va := &attachment{node: c.place}
				c.vas = append(c.vas, va)
				s.actor(fmt.Sprintf("attacher %s on machine %d at %d", c.name, va.node, time.Now().UnixNano()), func(a *actor) { a.attach(c, va) })
			}
			s.moved.Broadcast()
			s.mu.Unlock()
			continue
		}
		va := c.vas[0]
		s.mu.Unlock()
		a.follow(c, va)
	}
}

// comes says whether the claim's volume may come to where its pod is. The caller holds mu.
func (c *claim) comes() bool { return c.place >= 0 && c.place != c.late }

// follow works on an attachment until there is nothing to do for now.
func (a *actor) follow(c *claim, va *attachment) {
	s := a.s
	s.until(func() bool { return va.gone || c.place != va.node || va.attached && !va.staged })
	if !a.think() {
		return
	}
	s.mu.Lock()
	gone, leave, come := va.gone, c.place != va.node, va.attached && !va.staged
	s.mu.Unlock()
	switch {
	case gone:
	case leave:
		a.unstage(c, va)
		s.set(func() { va.deleting = true })
		s.until(func() bool { return va.gone })
	case come:
		a.stage(c, va)
	}
}

// stage is the kubelet's: it looks at what is on the volume and writes to it.
func (a *actor) stage(c *claim, va *attachment) {
	s := a.s
	if !a.pause(50*time.Millisecond, 2*time.Second) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	node := s.world.Nodes()[va.node]
	disk, there := s.world.Truth().Volumes[c.pv.id]
	switch want := c.stamps[len(c.stamps)-1].text; {
	case !there:
		s.wrong(Corrupt, "%s is published to %s and does not exist", c.name, node)
	case disk.Stamp != want:
		s.wrong(Corrupt, "%s has the content %q on %s, want %q", c.name, disk.Stamp, node, want)
	}
	text := fmt.Sprintf("%s written on %s at %s", c.name, node, s.hist.now())
	if err := s.world.Write(node, c.pv.id, text); err != nil {
		s.wrong(MultiAttached, "%s is published to %s and cannot be written there: %v", c.name, node, err)
	} else {
		c.stamps = append(c.stamps, stamp{since: time.Now(), text: text})
	}
	s.world.Use(c.pv.id, true)
	va.staged = true
	s.hist.add("kubelet", "%s: %s staged and written", node, c.name)
	s.moved.Broadcast()
}

// unstage ends the use, a while after the pod was told to end.
func (a *actor) unstage(c *claim, va *attachment) {
	s := a.s
	if !get(s, func() bool { return va.staged }) || !a.pause(50*time.Millisecond, 3*time.Second) {
		return
	}
	s.check()
	s.set(func() {
		va.staged = false
		s.world.Use(c.pv.id, false)
		s.hist.add("kubelet", "%s: %s unstaged", s.world.Nodes()[va.node], c.name)
	})
}

// attach is external-attacher's life with one attachment: calls for it come one after the other, publish
// until it is attached or deleted, then unpublish until that succeeds.
func (a *actor) attach(c *claim, va *attachment) {
	s := a.s
	failures := 0
	again := func(err error) {
		failures++
		if err == nil {
			failures = 0
			return
		}
		deleting := va.deleting
		a.backoff(failures, func() bool { return va.deleting != deleting })
	}
	for s.until(func() bool { return va.deleting || !va.attached || va.forced }) {
		if !a.think() {
			return
		}
		if get(s, func() bool { return va.deleting }) {
			if !va.asked {
				break
			}
			err := a.unpublish(c, va)
			if err == nil {
				break
			}
			again(err)
			continue
		}
		again(a.publish(c, va))
	}
	s.set(func() {
		va.gone = true
		c.vas = slices.DeleteFunc(c.vas, func(x *attachment) bool { return x == va })
	})
}

func (a *actor) publish(c *claim, va *attachment) error {
	s := a.s
	node := s.world.Nodes()[va.node]
	s.set(func() {
		va.asked, va.forced = true, false
		if c.byHand == node {
			c.byHand = "" // what is there already becomes the cluster's
		}
	})
	req := &csi.ControllerPublishVolumeRequest{
		VolumeId: string(c.pv.id), NodeId: string(node), VolumeCapability: capability(), VolumeContext: c.pv.context,
	}
	return a.call(plan.Attacher, "ControllerPublishVolume", fmt.Sprint(c.name, " ", node), attachTimeout,
		calling(csi.ControllerClient.ControllerPublishVolume, req),
		func(_ proto.Message, mine bool) {
			s.checkPublished(c, node)
			va.attached = va.attached || mine
			if mine && c.left >= 0 && c.left != va.node {
				c.moved = time.Now()
			}
		})
}

func (a *actor) unpublish(c *claim, va *attachment) error {
	s := a.s
	node := s.world.Nodes()[va.node]
	return a.call(plan.Attacher, "ControllerUnpublishVolume", fmt.Sprint(c.name, " ", node), attachTimeout, s.unpublishing(c, va.node),
		func(_ proto.Message, mine bool) {
			s.checkFree(c, node)
			if mine {
				c.left = va.node
			}
		})
}

// reconcile is the attacher's comparison of all attachments with ListVolumes.
func (s *sim) reconcile(a *actor) {
	began, was := time.Now(), get(s, s.provisioned)
	seen := map[string][]string{}
	for token := ""; ; {
		var page *csi.ListVolumesResponse
		err := a.call(plan.Attacher, "ListVolumes", "all", attachTimeout,
			calling(csi.ControllerClient.ListVolumes, &csi.ListVolumesRequest{StartingToken: token, MaxEntries: 2}),
			func(m proto.Message, mine bool) {
				if mine {
					page = m.(*csi.ListVolumesResponse)
				}
			})
		if err != nil {
			return // the next round comes half an hour later
		}
		for _, e := range page.GetEntries() {
			seen[e.GetVolume().GetVolumeId()] = e.GetStatus().GetPublishedNodeIds()
		}
		if token = page.GetNextToken(); token == "" {
			break
		}
	}
	s.set(func() {
		s.checkComplete(began, was, seen)
		for _, c := range s.claims {
			for _, va := range c.vas {
				found := slices.Contains(seen[string(c.pv.id)], string(s.world.Nodes()[va.node]))
				va.forced = va.forced || va.attached != found
			}
		}
	})
}

// provisioned are the volumes that a list must show now. The caller holds mu.
func (s *sim) provisioned() map[cloud.VolumeID]string {
	ids := map[cloud.VolumeID]string{}
	for _, c := range s.claims {
		if c.pv != nil && !c.deleting {
			ids[c.pv.id] = c.name
		}
	}
	return ids
}
