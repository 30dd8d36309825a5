package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/world"
)

// Breach is a kind of thing that must never happen.
type Breach string

// The breaches.
const (
	// Leaked: something of ours is left after everything was deleted.
	Leaked Breach = "leaked"
	// Doubled: two volumes or snapshots of one name.
	Doubled Breach = "doubled"
	// MultiAttached: a volume is attached where no VolumeAttachment wants it, or not where a reply said.
	MultiAttached Breach = "multiattached"
	// Corrupt: a wrong stamp, a lost or smaller volume, a detach while a machine uses it.
	Corrupt Breach = "corrupt"
	// Trespassed: another cluster's object changed, except by DeleteVolume of its exact id.
	Trespassed Breach = "trespassed"
	// Unequal: replies for one name differ, a list lacks a volume, or a reply is not what the cloud has.
	Unequal Breach = "unequal"
	// BadCode: Internal, Unknown, Unimplemented, or AlreadyExists for the very same request.
	BadCode Breach = "badcode"
	// Stuck: something does not end within three hours (patience) after the last fault.
	Stuck Breach = "stuck"
)

// Breaches are all of them.
var Breaches = []Breach{Leaked, Doubled, MultiAttached, Corrupt, Trespassed, Unequal, BadCode, Stuck}

// Wrong is one breach.
type Wrong struct {
	Breach Breach
	Text   string
}

// foreignSnapshot is a snapshot's name that another cluster uses as well.
const foreignSnapshot = "snapshot-9"

// wrong notes a breach, once. The caller holds mu.
func (s *sim) wrong(b Breach, format string, args ...any) {
	w := Wrong{b, fmt.Sprintf(format, args...)}
	if slices.Contains(s.wrongs, w) {
		return
	}
	s.wrongs = append(s.wrongs, w)
	s.hist.add(breachMark, "%s: %s", b, w.Text)
	if s.first {
		s.end()
	}
}

// check compares the truth with what must hold at all times.
func (s *sim) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	truth := s.world.Truth()
	count := map[string]int{}
	for id, d := range truth.Volumes {
		if d.Foreign {
			continue
		}
		if !d.Dying {
			count[d.Name]++
		}
		if count[d.Name] > 1 {
			s.wrong(Doubled, "there are two volumes %s", d.Name)
		}
		if len(d.On) > 1 {
			s.wrong(MultiAttached, "%s is attached to %v", d.Name, d.On)
		}
		s.checkPlace(id, d)
	}
	for _, d := range truth.Snapshots {
		if !d.Foreign && !d.Dying {
			count["snapshot "+d.Name]++
			if count["snapshot "+d.Name] > 1 {
				s.wrong(Doubled, "there are two snapshots %s", d.Name)
			}
		}
	}
	for _, c := range s.claims {
		s.checkVolume(c, truth)
	}
	for _, sn := range s.snapshots {
		if img, there := truth.Snapshots[sn.id]; sn.id != "" && sn.wanted && !s.mayBeLost(sn) && (!there || img.Stamp != sn.content) {
			s.wrong(Corrupt, "%s holds %q (there: %t), want %q", sn.name, img.Stamp, there, sn.content)
		}
	}
	s.checkForeign(truth)
}

// mayBeLost: a snapshot that was answered while the cloud was still making it, and never ready since, may be one that
// the cloud has given up.
func (s *sim) mayBeLost(sn *snap) bool { return !sn.ready && s.in.Since(sn.sent, trouble.Failed) }

// checkPlace: a volume is attached only where an attachment object says so. A late attach has none.
func (s *sim) checkPlace(id cloud.VolumeID, d world.Disk) {
	for _, node := range d.On {
		meant := false
		for _, c := range s.claims {
			meant = meant || c.pv != nil && c.pv.id == id && c.byHand == node || c.pv != nil && c.pv.id == id && slices.ContainsFunc(c.vas, func(va *attachment) bool {
				return va.asked && !va.gone && s.world.Nodes()[va.node] == node
			})
		}
		if !meant {
			s.wrong(MultiAttached, "%s is attached to %s although nobody wants that any more", d.Name, node)
		}
	}
}

// checkVolume: a provisioned volume exists, keeps its bytes and its size, and stays where it is in use.
func (s *sim) checkVolume(c *claim, truth world.Truth) {
	if c.pv == nil || c.deleting {
		return
	}
	d, there := truth.Volumes[c.pv.id]
	switch {
	case !there:
		s.wrong(Corrupt, "%s is gone although nobody deleted it", c.name)
		return
	case len(c.stamps) > 0 && d.Stamp != c.stamps[len(c.stamps)-1].text:
		s.wrong(Corrupt, "%s holds %q, want %q", c.name, d.Stamp, c.stamps[len(c.stamps)-1].text)
	case d.Size < c.pv.size:
		s.wrong(Corrupt, "%s has %s, and had %s", c.name, d.Size, c.pv.size)
	}
	if c.byHand != "" && !slices.Equal(d.On, []cloud.NodeID{c.byHand}) {
		s.wrong(Corrupt, "%s was attached to %s by hand and is attached to %v", c.name, c.byHand, d.On)
	}
	for _, va := range c.vas {
		if va.staged && (d.Halfway || !slices.Equal(d.On, []cloud.NodeID{s.world.Nodes()[va.node]})) {
			s.wrong(Corrupt, "%s is in use on %s and attached to %v (halfway: %t)", c.name, s.world.Nodes()[va.node], d.On, d.Halfway)
		}
	}
}

func (s *sim) checkForeign(truth world.Truth) {
	for id := range s.foreign {
		if d, there := truth.Volumes[id]; !there || d.Stamp != world.TheirStamp || len(d.On) > 0 {
			s.wrong(Trespassed, "another cluster's volume %s was changed (there: %t)", id, there)
		}
	}
	for id := range s.images {
		if img, there := truth.Snapshots[id]; !there || img.Stamp != world.TheirStamp {
			s.wrong(Trespassed, "another cluster's snapshot %s was changed (there: %t)", id, there)
		}
	}
}

// checkCreated compares what CreateVolume answered with the truth.
func (s *sim) checkCreated(c *claim, req *csi.CreateVolumeRequest, vol *csi.Volume) {
	d, there := s.world.Truth().Volumes[cloud.VolumeID(vol.GetVolumeId())]
	switch {
	case !there:
		s.wrong(Unequal, "CreateVolume %s answered %s, which does not exist", c.name, vol.GetVolumeId())
		return
	case d.Foreign:
		s.wrong(Trespassed, "CreateVolume %s answered another cluster's %s", c.name, vol.GetVolumeId())
	case int64(d.Size) != vol.GetCapacityBytes() || d.Size < c.size:
		s.wrong(Unequal, "CreateVolume %s of %s answered %d bytes, the volume has %s", c.name, c.size, vol.GetCapacityBytes(), d.Size)
	case req.GetVolumeContentSource().String() != vol.GetContentSource().String():
		s.wrong(Unequal, "CreateVolume %s from %v answered the source %v", c.name, req.GetVolumeContentSource(), vol.GetContentSource())
	case len(vol.GetAccessibleTopology()) != 1:
		s.wrong(Unequal, "CreateVolume %s answered the topology %v", c.name, vol.GetAccessibleTopology())
	}
	var may []string
	switch c.from.Kind {
	case plan.FromVolume:
		may = s.claims[c.from.Number].contents(c.sent)
	case plan.FromSnapshot:
		may = []string{s.snapshots[c.from.Number].content}
	default:
		may = []string{""}
	}
	if !slices.Contains(may, d.Stamp) {
		s.wrong(Corrupt, "%s begins with the content %q, want one of %q", c.name, d.Stamp, may)
	}
	if len(c.stamps) == 0 {
		c.stamps = []stamp{{time.Now(), d.Stamp}}
	}
}

// contents are those that the volume had at some time since.
func (c *claim) contents(since time.Time) (texts []string) {
	for i, st := range c.stamps {
		if i+1 == len(c.stamps) || !c.stamps[i+1].since.Before(since) {
			texts = append(texts, st.text)
		}
	}
	return texts
}

func (s *sim) checkSnapshot(sn *snap, got *csi.Snapshot) {
	id := cloud.SnapshotID(got.GetSnapshotId())
	img, there := s.world.Truth().Snapshots[id]
	switch {
	case !there && sn.wanted && (got.GetReadyToUse() || !s.mayBeLost(sn)):
		s.wrong(Unequal, "%s is said to be %s, which does not exist", sn.name, id)
	case !there:
		return
	case img.Foreign:
		s.wrong(Trespassed, "%s is said to be another cluster's %s", sn.name, id)
	case sn.id != "" && sn.id != id:
		s.wrong(Unequal, "%s is said to be %s and then %s", sn.name, sn.id, id)
	case got.GetSourceVolumeId() != string(sn.of.pv.id):
		s.wrong(Unequal, "%s of %s is said to be of %s", sn.name, sn.of.pv.id, got.GetSourceVolumeId())
	}
	if may := sn.of.contents(sn.sent); !slices.Contains(may, img.Stamp) {
		s.wrong(Corrupt, "%s holds %q, want one of %q", sn.name, img.Stamp, may)
	}
	sn.content = img.Stamp
}

func (s *sim) checkGrown(c *claim, goal, said cloud.Bytes) {
	if d, there := s.world.Truth().Volumes[c.pv.id]; there && d.Size < goal || said < goal {
		s.wrong(Unequal, "ControllerExpandVolume %s to %s answered %s, the volume has %s", c.name, goal, said, d.Size)
	}
}

func (s *sim) checkPublished(c *claim, node cloud.NodeID) {
	if d := s.world.Truth().Volumes[c.pv.id]; d.Halfway || !slices.Equal(d.On, []cloud.NodeID{node}) {
		s.wrong(MultiAttached, "ControllerPublishVolume %s to %s succeeded, it is attached to %v (halfway: %t)", c.name, node, d.On, d.Halfway)
	}
}

func (s *sim) checkFree(c *claim, node cloud.NodeID) {
	if d := s.world.Truth().Volumes[c.pv.id]; slices.Contains(d.On, node) {
		s.wrong(MultiAttached, "ControllerUnpublishVolume %s from %s succeeded, it is still attached", c.name, node)
	}
}

func (s *sim) checkGone(id cloud.VolumeID) {
	if _, there := s.world.Truth().Volumes[id]; there {
		s.wrong(Leaked, "DeleteVolume %s succeeded and it is still there", id)
	}
}

// checkComplete: what existed before a list began and exists still is in the list.
func (s *sim) checkComplete(began time.Time, was map[cloud.VolumeID]string, seen map[string][]string) {
	if s.in.Since(began, trouble.Stale) {
		return // the cloud itself said so
	}
	for id, name := range s.provisioned() {
		if _, listed := seen[string(id)]; was[id] != "" && !listed {
			s.wrong(Unequal, "ListVolumes lacks %s", name)
		}
	}
}

// finalCheck: at the end nothing of ours is left, and all that others had.
func (s *sim) finalCheck() {
	s.check()
	s.mu.Lock()
	defer s.mu.Unlock()
	truth := s.world.Truth()
	for id, d := range truth.Volumes {
		switch {
		case !d.Foreign && !d.Later:
			s.wrong(Leaked, "volume %s (%s) is left", d.Name, id)
		case d.Foreign && !s.foreign[id]:
			s.wrong(Leaked, "volume %s was deleted by its exact id and is there", id)
		}
	}
	for id, img := range truth.Snapshots {
		named := slices.ContainsFunc(slices.Collect(maps.Values(s.snapshots)), func(sn *snap) bool { return sn.id == id })
		if !img.Foreign && !img.Later && (!img.Lost || named) {
			s.wrong(Leaked, "snapshot %s (%s) is left", img.Name, id)
		}
	}
	for _, text := range s.world.Complaints() {
		s.wrong(Corrupt, "the cloud complains: %s", text)
	}
}
