package cloudtest

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func (h Harness) testCreate(t *testing.T) {
	h.check(t, "the answer is the volume, with its real size, at least the request's", func(e *env) {
		req := e.request("blank")
		vol := e.create(req)
		if vol.ID == "" || vol.Size < req.Size || vol.Size%e.caps.SizeStep != 0 || !vol.Source.Blank() || len(vol.AttachedTo) != 0 {
			e.Errorf("CreateVolume(%+v) = %+v", req, vol)
		}
		if got := e.get(vol.ID); got.Size != vol.Size || got.Zone != vol.Zone || got.Source != vol.Source {
			e.Errorf("GetVolume = %+v, CreateVolume = %+v", got, vol)
		}
		e.left(vol.ID)
	})
	h.check(t, "the largest acceptable size is respected", func(e *env) {
		req := e.request("limited")
		req.Limit = req.Size
		if vol := e.create(req); vol.Size != req.Size {
			e.Errorf("CreateVolume with size and limit %s has %s", req.Size, vol.Size)
		}
	})
	h.check(t, "a tag of the driver with any name of Kubernetes is adapted to the cloud", func(e *env) {
		req := e.request("tagged")
		req.Tags = []cloud.Tag{{Key: cloud.OwnTags + "pvc", Value: "a" + strings.Repeat("-", 80) + ".b"}} // dashes at its end where it is cut
		e.left(e.create(req).ID)
	})
	h.check(t, "it returns when the volume is ready to be attached", func(e *env) {
		vol := e.volume("ready")
		if !e.caps.Attach {
			return // no other call shows it
		}
		_, err := e.c.Attach(e.Context(), vol.ID, e.h.Nodes[0])
		e.ok(err, "Attach at once")
	})
	h.check(t, "the parameters of the request are the volume's", func(e *env) {
		req := e.request("parameters")
		req.Parameters = e.h.Parameters
		vol := e.create(req)
		for _, p := range req.Parameters {
			if !slices.Contains(vol.Parameters, p) {
				e.Errorf("Parameters = %v, want %v in them", vol.Parameters, p)
			}
		}
	})
	h.testTakenNames(t)
	h.testZones(t)
	h.testNothingLeft(t)
}

// testTakenNames tests the second create with one name.
func (h Harness) testTakenNames(t *testing.T) {
	if h.Idempotent {
		h.check(t, "the same request again is answered like the first time", func(e *env) {
			req := e.request("twice")
			req.Parameters = e.h.Parameters
			first := e.create(req)
			if second := e.create(req); !reflect.DeepEqual(first, second) {
				e.Errorf("CreateVolume twice:\n%+v\n%+v", first, second)
			}
			e.left(first.ID)
		})
	}
	h.check(t, "a name that is taken, by whatever volume, changes nothing and is fault.Conflict", func(e *env) {
		if e.size+e.caps.SizeStep > e.caps.LargestVolume {
			e.Fatalf("the harness's size %s leaves no room for a larger volume", e.size)
		}
		first := e.volume("taken")
		same := e.request("taken")
		larger, elsewhere, otherwise := same, same, same
		larger.Size += e.caps.SizeStep
		others := []cloud.CreateVolumeRequest{larger}
		if len(e.h.Zones) > 1 {
			elsewhere.Zones = e.h.Zones[1:2]
			others = append(others, elsewhere)
		}
		if len(e.h.Parameters) > 0 {
			otherwise.Parameters = e.h.Parameters
			others = append(others, otherwise)
		}
		if !e.h.Idempotent {
			others = append(others, same)
		}
		if e.caps.Clones {
			source := e.volume("source")
			copied := same
			copied.Source.Volume = source.ID
			others = append(others, copied)
			defer e.left(first.ID, source.ID)
		} else {
			defer e.left(first.ID)
		}
		for _, req := range others {
			_, err := e.conflicting(req)
			e.want(err, "CreateVolume under a taken name", fault.Conflict)
		}
		if got := e.get(first.ID); got.Size != first.Size || got.Zone != first.Zone {
			e.Errorf("the volume is now %+v, it was %+v", got, first)
		}
	})
}

// conflicting makes one call of a bare backend; inside the decorators it repeats the call until the answer is final.
func (e *env) conflicting(req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	if e.h.Idempotent {
		return e.settle(req)
	}
	return e.c.CreateVolume(e.Context(), req)
}

func (h Harness) testZones(t *testing.T) {
	h.check(t, "the first acceptable zone that can serve is taken, and the answer states it", func(e *env) {
		zones := e.h.Zones
		tests := map[string][]string{}
		for _, zone := range zones {
			tests[zone] = []string{zone}
		}
		tests["no-such-zone first"] = append([]string{"no-such-zone"}, zones...)
		backwards := slices.Clone(zones)
		slices.Reverse(backwards)
		tests["backwards"] = backwards
		for name, acceptable := range tests {
			req := e.request("zones " + name)
			req.Zones = acceptable
			want := acceptable[0]
			if want == "no-such-zone" {
				want = zones[0]
			}
			if vol := e.create(req); vol.Zone != want || e.get(vol.ID).Zone != want {
				e.Errorf("CreateVolume in one of %q is in %q, want %q", acceptable, vol.Zone, want)
			}
		}
	})
	h.check(t, "no zone means the backend's own choice", func(e *env) {
		req := e.request("anywhere")
		req.Zones = nil
		if vol := e.create(req); vol.Zone == "" {
			e.Errorf("CreateVolume without zones = %+v, want a zone", vol)
		}
	})
	h.check(t, "fault.Exhausted when none of the request's zones can serve", func(e *env) {
		for _, zone := range []string{"no-such-zone", "../" + e.h.Zones[0], e.h.Zones[0] + "?x=1"} {
			req := e.request("nowhere")
			req.Zones = []string{zone}
			_, err := e.c.CreateVolume(e.Context(), req)
			e.want(err, "CreateVolume in no zone that exists", fault.Exhausted)
			e.reason(err, "CreateVolume in no zone that exists", fault.NoZone)
		}
		e.left()
	})
}

func (h Harness) testNothingLeft(t *testing.T) {
	h.check(t, "fault.Exhausted is given only when nothing of this call is left behind", func(e *env) {
		if !e.caps.Capacity {
			return // the suite does not know the limit
		}
		zone := e.h.Zones[0]
		before := e.capacity(zone)
		req := e.request("too much")
		req.Size = e.caps.LargestVolume
		if req.Size <= before+e.h.CapacitySlack {
			e.Fatalf("the zone has %s, more than the largest volume: the harness must make it smaller", before)
		}
		_, err := e.c.CreateVolume(e.Context(), req)
		e.want(err, "CreateVolume of more than there is", fault.Exhausted)
		e.nothingLeft(req.Name)
		if after := e.capacity(zone); !e.near(before, after) {
			e.Errorf("Capacity = %s, then %s", before, after)
		}
	})
	h.check(t, "fault.OutOfRange is given only when nothing of this call is left behind", func(e *env) {
		if e.caps.LargestVolume > math.MaxInt64-e.caps.SizeStep {
			return // no size is too large
		}
		req := e.request("too large")
		req.Size = e.caps.LargestVolume + e.caps.SizeStep
		_, err := e.c.CreateVolume(e.Context(), req)
		e.want(err, "CreateVolume above LargestVolume", fault.OutOfRange)
		e.nothingLeft(req.Name)
	})
	h.check(t, "fault.InvalidArgument is given only when nothing of this call is left behind", func(e *env) {
		req := e.request("unknown parameter")
		req.Parameters = []cloud.Parameter{{Name: "no-such-parameter", Value: "x"}}
		_, err := e.c.CreateVolume(e.Context(), req)
		e.want(err, "CreateVolume with an unknown parameter", fault.InvalidArgument)
		e.nothingLeft(req.Name)
	})
}

func (e *env) nothingLeft(name string) {
	e.Helper()
	_, err := e.c.FindVolume(e.Context(), name)
	e.want(err, "FindVolume of what was refused", fault.NotFound)
	e.left()
}

func (h Harness) testCopies(t *testing.T) {
	h.check(t, "fault.InvalidArgument when the backend cannot serve that kind of source", func(e *env) {
		source := e.volume("source")
		req := e.request("copy")
		if !e.caps.Clones {
			req.Source = cloud.Source{Volume: source.ID}
			_, err := e.c.CreateVolume(e.Context(), req)
			e.want(err, "CreateVolume from a volume", fault.InvalidArgument)
		}
		if !e.caps.Snapshots {
			req.Source = cloud.Source{Snapshot: cloud.SnapshotID(source.ID)}
			_, err := e.c.CreateVolume(e.Context(), req)
			e.want(err, "CreateVolume from a snapshot", fault.InvalidArgument)
		}
		e.left(source.ID)
	})
	h.check(t, "fault.NotFound when the source does not exist", func(e *env) {
		gone := e.volume("gone")
		e.ok(e.c.DeleteVolume(e.Context(), gone.ID), "DeleteVolume")
		for _, source := range []cloud.Source{{Volume: gone.ID}, {Snapshot: cloud.SnapshotID(gone.ID)}} {
			want := fault.NotFound
			if source.Volume != "" && !e.caps.Clones || source.Snapshot != "" && !e.caps.Snapshots {
				want = fault.InvalidArgument
			}
			req := e.request("copy of nothing")
			req.Source = source
			_, err := e.c.CreateVolume(e.Context(), req)
			e.want(err, "CreateVolume from what does not exist", want)
		}
		e.left()
	})
	for kind, has := range map[string]func(cloud.Capabilities) bool{
		"volume":   func(c cloud.Capabilities) bool { return c.Clones },
		"snapshot": func(c cloud.Capabilities) bool { return c.Snapshots },
	} {
		h.check(t, "a copy of a "+kind+" names its source and has the size asked for", func(e *env) {
			if !has(e.caps) {
				return // fault.InvalidArgument is demanded above
			}
			from := e.volume("source")
			source := cloud.Source{Volume: from.ID}
			if kind == "snapshot" {
				source = cloud.Source{Snapshot: e.snapshot("source", from.ID).ID}
			}
			for name, more := range map[string]cloud.Bytes{"the same size": 0, "a larger size": e.caps.SizeStep} {
				req := e.request("copy of " + name)
				req.Source = source
				req.Size = from.Size + more
				vol := e.create(req)
				if vol.Size < req.Size || vol.Source != source || e.get(vol.ID).Size != vol.Size {
					e.Errorf("CreateVolume(%+v) = %+v", req, vol)
				}
				if again := e.create(req); !reflect.DeepEqual(vol, again) {
					e.Errorf("the copy when asked again:\n%+v\n%+v", vol, again)
				}
			}
		})
	}
}

func (h Harness) testFind(t *testing.T) {
	h.check(t, "it returns the volume that CreateVolume made under this request name", func(e *env) {
		vol := e.volume("wanted")
		e.volume("unwanted")
		found, err := e.c.FindVolume(e.Context(), "wanted")
		if err != nil || !reflect.DeepEqual(found, vol) {
			e.Errorf("FindVolume = %+v, %v, want %+v", found, err, vol)
		}
	})
	h.check(t, "fault.NotFound when there is none", func(e *env) {
		vol := e.volume("here")
		e.ok(e.c.DeleteVolume(e.Context(), e.volume("deleted").ID), "DeleteVolume")
		for _, name := range []string{"", "her", "heree", "HERE", "here ", "deleted", string(vol.ID), "*", "%"} {
			_, err := e.c.FindVolume(e.Context(), name)
			e.want(err, "FindVolume of another name", fault.NotFound)
		}
	})
}

// testClusters needs two clusters in one account.
func (h Harness) testClusters(t *testing.T) {
	if h.Pair == nil {
		return
	}
	pair := func(t *testing.T) (a, b *env) {
		x, y := h.Pair(t)
		return h.env(t, x), h.env(t, y)
	}
	h.run(t, "a name held by another cluster's volume is fault.Conflict or free, never that volume", func(t *testing.T) {
		a, b := pair(t)
		first := a.volume("shared")
		second, err := b.conflicting(b.request("shared"))
		switch {
		case err == nil && second.ID == first.ID:
			t.Fatalf("both clusters were given %s", first.ID)
		case err != nil:
			b.want(err, "CreateVolume in the second cluster", fault.Conflict)
			_, err = b.c.FindVolume(t.Context(), "shared")
			b.want(err, "FindVolume in the second cluster", fault.Conflict)
		}
		if found, err := a.c.FindVolume(t.Context(), "shared"); err != nil || found.ID != first.ID {
			t.Errorf("FindVolume in the first cluster = %s, %v, want %s", found.ID, err, first.ID)
		}
	})
	h.run(t, "a volume has the mark of its cluster", func(t *testing.T) {
		a, b := pair(t)
		first, second := a.get(a.volume("first").ID).Mark, b.get(b.volume("second").ID).Mark
		if !first.Driver || !second.Driver || first == second {
			t.Errorf("the volumes of two clusters have the marks %+v and %+v", first, second)
		}
	})
	h.run(t, "a delete in one cluster leaves the other's volume of that name", func(t *testing.T) {
		a, b := pair(t)
		first := a.volume("shared")
		second, err := b.conflicting(b.request("shared"))
		if errors.Is(err, fault.Conflict) {
			second = b.volume("shared not")
		}
		b.ok(b.c.DeleteVolume(t.Context(), second.ID), "DeleteVolume in the second cluster")
		a.get(first.ID)
	})
}
