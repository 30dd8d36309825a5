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

// provisionTimeout is --timeout of the provisioner in the project's manifests.
const provisionTimeout = 5 * time.Minute

// provision is external-provisioner's life with one claim: it creates until it succeeds, and when the
// claim is deleted meanwhile it goes on for as long as the last answer left open whether there is a
// volume. A final answer makes it forget; a volume that exists then is leaked.
func (a *actor) provision(c *claim) {
	s := a.s
	defer s.set(func() { c.gone = true })
	if !a.sourceIsThere(c) {
		s.hist.add(a.name, "forgets the claim: it has no source")
		return
	}
	defer a.releaseSource(c)
	for failures := 0; ; failures++ {
		if !s.present() || !a.think() {
			return
		}
		if get(s, func() bool { return !c.wanted && !c.pending }) {
			s.hist.add(a.name, "forgets the claim: it is deleted and nothing is pending")
			return
		}
		if err := a.create(c); err == nil {
			break
		} else {
			pending := inBackground(err)
			s.set(func() { c.pending = pending })
		}
		a.backoff(failures, never)
	}
	a.releaseSource(c)
	s.until(func() bool { return !c.wanted && c.held == 0 && len(c.vas) == 0 && c.place < 0 })
	a.delete(c)
}

// inBackground says whether the provisioner takes a call to be still going on (checkError in its
// pkg/controller/controller.go).
func inBackground(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted:
		return true
	default:
		return false
	}
}

// sourceIsThere waits for the source of a copy and keeps it in the cluster while the copy is made.
func (a *actor) sourceIsThere(c *claim) bool {
	s := a.s
	var there bool
	s.until(func() bool {
		switch c.from.Kind {
		case plan.FromVolume:
			of := s.claims[c.from.Number]
			there = of.pv != nil && !of.deleting && of.wanted
			if there {
				of.held++
			}
			return there || of.gone || !of.wanted || !c.wanted
		case plan.FromSnapshot:
			of := s.snapshots[c.from.Number]
			there = of.id != "" && of.ready && of.wanted
			if there {
				of.held++
			}
			return there || of.gone || !of.wanted || !c.wanted
		}
		there = true
		return true
	})
	return there
}

// releaseSource lets the source be deleted.
func (a *actor) releaseSource(c *claim) {
	s := a.s
	s.set(func() {
		switch c.from.Kind {
		case plan.FromVolume:
			s.claims[c.from.Number].held--
		case plan.FromSnapshot:
			s.snapshots[c.from.Number].held--
		}
		c.from.Kind = plan.Blank
	})
}

func (a *actor) create(c *claim) error {
	s := a.s
	req := s.createRequest(c)
	return a.call(plan.Provisioner, "CreateVolume", c.name, provisionTimeout,
		calling(csi.ControllerClient.CreateVolume, req),
		func(m proto.Message, mine bool) {
			got := m.(*csi.CreateVolumeResponse)
			if c.reply == nil {
				c.reply = got
			}
			if !proto.Equal(c.reply, got) {
				s.wrong(Unequal, "CreateVolume %s answered %v and then %v", c.name, c.reply.GetVolume(), got.GetVolume())
			}
			vol := got.GetVolume()
			s.checkCreated(c, req, vol)
			if mine {
				c.pv = &volume{id: cloud.VolumeID(vol.GetVolumeId()), size: cloud.Bytes(vol.GetCapacityBytes()), context: vol.GetVolumeContext()}
				c.pending = false
			}
		})
}

// createRequest is what the provisioner sends, the same every time.
func (s *sim) createRequest(c *claim) *csi.CreateVolumeRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.sent.IsZero() {
		c.sent = time.Now()
	}
	here := []*csi.Topology{{Segments: s.world.Names().Segments(s.world.Zone())}}
	req := &csi.CreateVolumeRequest{
		Name:                      c.name,
		CapacityRange:             &csi.CapacityRange{RequiredBytes: int64(c.size)},
		VolumeCapabilities:        []*csi.VolumeCapability{capability()},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: here, Preferred: here},
	}
	switch c.from.Kind {
	case plan.FromVolume:
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: string(s.claims[c.from.Number].pv.id)},
		}}
	case plan.FromSnapshot:
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: string(s.snapshots[c.from.Number].id)},
		}}
	}
	return req
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// delete removes the volume until that succeeds, like the provisioner with a released PersistentVolume.
func (a *actor) delete(c *claim) {
	s := a.s
	s.set(func() { c.deleting = true })
	req := &csi.DeleteVolumeRequest{VolumeId: string(c.pv.id)}
	for failures := 0; s.present() && a.think(); failures++ {
		err := a.call(plan.Provisioner, "DeleteVolume", c.name, provisionTimeout,
			calling(csi.ControllerClient.DeleteVolume, req),
			func(proto.Message, bool) { s.checkGone(c.pv.id) })
		if err == nil {
			return
		}
		a.backoff(failures, never)
	}
}

// adopt deletes a volume of another cluster by its exact id, as a PersistentVolume made by hand does.
func (s *sim) adopt(a *actor) {
	id, err := s.world.Foreign("adopted", "of-adopted")
	if err != nil {
		s.set(func() { s.wrong(Stuck, "another cluster's volume: %v", err) })
		return
	}
	c := &claim{number: -1, name: "adopted", pv: &volume{id: id}}
	a.delete(c)
}
