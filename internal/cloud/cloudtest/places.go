package cloudtest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Elsewhere are a place of the same kind, such as another node, and ids that it can have made.
type Elsewhere struct {
	Place    string
	Volume   cloud.VolumeID
	Snapshot cloud.SnapshotID
}

// testElsewhere tests ids of places that this backend cannot query.
func (h Harness) testElsewhere(t *testing.T) {
	if h.Elsewhere.Volume == "" {
		return // there is no other place
	}
	h.check(t, "reads do not find an object of another place", func(e *env) {
		_, err := e.c.GetVolume(e.Context(), e.h.Elsewhere.Volume)
		e.want(err, "GetVolume of another place's", fault.NotFound)
		if e.caps.Snapshots {
			_, err = e.c.GetSnapshot(e.Context(), e.h.Elsewhere.Snapshot)
			e.want(err, "GetSnapshot of another place's", fault.NotFound)
			e.snapshotsOf(e.h.Elsewhere.Volume)
		}
	})
	h.check(t, "a change or a snapshot of it is fault.Precondition and names that place", func(e *env) {
		vol, other, ctx := e.volume("here"), e.h.Elsewhere.Volume, e.Context()
		errs := map[string]error{"DeleteVolume": e.c.DeleteVolume(ctx, other)}
		if e.caps.Expand {
			_, errs["ExpandVolume"] = e.c.ExpandVolume(ctx, other, e.caps.LargestVolume)
		}
		if e.caps.Attach {
			_, errs["Attach"] = e.c.Attach(ctx, other, e.h.Nodes[0])
			errs["Detach"] = e.c.Detach(ctx, other, e.h.Nodes[0])
		}
		if e.caps.Snapshots {
			errs["DeleteSnapshot"] = e.c.DeleteSnapshot(ctx, e.h.Elsewhere.Snapshot)
			_, errs["CreateSnapshot"] = e.c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: "s", Volume: other})
		}
		for call, err := range errs {
			e.refusal(err, call+" of another place's", fault.Precondition)
		}
		if e.caps.Snapshots {
			e.snapshotsLeft()
		}
		e.left(vol.ID)
	})
	h.check(t, "a copy of it is fault.Exhausted and names that place", func(e *env) {
		for source, can := range map[cloud.Source]bool{
			{Volume: e.h.Elsewhere.Volume}: e.caps.Clones, {Snapshot: e.h.Elsewhere.Snapshot}: e.caps.Snapshots,
		} {
			if !can {
				continue // another subtest requires fault.InvalidArgument
			}
			req := e.request("copy")
			req.Source = source
			_, err := e.c.CreateVolume(e.Context(), req)
			e.refusal(err, fmt.Sprintf("CreateVolume from %+v", source), fault.Exhausted)
			e.reason(err, fmt.Sprintf("CreateVolume from %+v", source), fault.SourceElsewhere)
		}
		e.left()
	})
}

// refusal fails the test unless the error has the kind and names the other place.
func (e *env) refusal(err error, call string, kind fault.Kind) {
	e.Helper()
	e.want(err, call, kind)
	if err != nil && !strings.Contains(err.Error(), e.h.Elsewhere.Place) {
		e.Errorf("%s = %v, want it to name %s", call, err, e.h.Elsewhere.Place)
	}
}

// testSnapshotZones tests the zone of a snapshot.
func (h Harness) testSnapshotZones(t *testing.T) {
	h.snapshots(t, "a snapshot names its only zone, or none and can be restored everywhere", func(e *env, vol cloud.Volume) {
		snap := e.snapshot("snap", vol.ID)
		want := ""
		if e.caps.SnapshotZones {
			want = vol.Zone
		}
		if snap.Zone != want {
			e.Errorf("the snapshot of a volume in %s has the zone %q, want %q", vol.Zone, snap.Zone, want)
		}
		for _, zone := range e.h.Zones {
			req := e.request("restored in " + zone)
			req.Zones = []string{zone}
			req.Source.Snapshot = snap.ID
			made, err := e.settle(req)
			switch {
			case snap.Zone != "" && snap.Zone != zone:
				e.want(err, "CreateVolume in another zone than the snapshot's", fault.Exhausted)
			case err != nil || made.Zone != zone:
				e.Errorf("CreateVolume in %s = %+v, %v", zone, made, err)
			}
		}
	})
}

// camelCase matches the form that CSI requires of a reason.
var camelCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

func (h Harness) testHealth(t *testing.T) {
	h.check(t, "a volume with which nothing is wrong has the zero Health", func(e *env) {
		vol := e.volume("well")
		for what, health := range map[string]cloud.Health{
			"CreateVolume": vol.Health, "GetVolume": e.get(vol.ID).Health, "ListVolumes": e.ids()[vol.ID].Health,
		} {
			if health != (cloud.Health{}) {
				e.Errorf("%s shows the health %+v", what, health)
			}
		}
	})
	h.check(t, "what is wrong with a volume is in GetVolume and ListVolumes, where Capabilities.Health says so", func(e *env) {
		if h.Sick == nil {
			return // the harness cannot damage a volume
		}
		vol, other := e.volume("ill"), e.volume("well")
		want := h.Sick(e.T, vol.ID)
		if !e.caps.Health {
			want = cloud.Health{}
		} else if want.Kind == cloud.Healthy || !camelCase.MatchString(want.Reason) || want.Message == "" {
			e.Errorf("the health %+v has no kind, no CamelCase reason or no message", want)
		}
		list := e.ids()
		if got := e.get(vol.ID).Health; got != want || list[vol.ID].Health != want {
			e.Errorf("GetVolume shows the health %+v, ListVolumes %+v, want %+v", got, list[vol.ID].Health, want)
		}
		if got := list[other.ID].Health; got != (cloud.Health{}) {
			e.Errorf("the other volume has the health %+v", got)
		}
	})
}
