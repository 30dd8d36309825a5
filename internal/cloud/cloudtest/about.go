package cloudtest

import (
	"reflect"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func (h Harness) testCapabilities(t *testing.T) {
	h.check(t, "it is constant and needs no request", func(e *env) {
		before := e.requests()
		first := e.c.Capabilities()
		for i := range first.Parameters {
			first.Parameters[i] = "changed by a caller"
		}
		if again := e.c.Capabilities(); !reflect.DeepEqual(again, e.caps) {
			e.Errorf("Capabilities = %+v, then %+v", e.caps, again)
		}
		if n := e.requests() - before; n != 0 {
			e.Errorf("Capabilities made %d requests", n)
		}
	})
	h.check(t, "SizeStep divides every size, and the sizes are in order", func(e *env) {
		c := e.caps
		if c.SizeStep < 1 {
			e.Fatalf("SizeStep = %d, want at least 1", c.SizeStep)
		}
		if c.SmallestVolume < 1 || c.SmallestVolume > c.DefaultSize || c.DefaultSize > c.LargestVolume {
			e.Errorf("sizes = %s, %s, %s, want smallest <= default <= largest", c.SmallestVolume, c.DefaultSize, c.LargestVolume)
		}
		for _, size := range []cloud.Bytes{c.SmallestVolume, c.DefaultSize, c.LargestVolume} {
			if size%c.SizeStep != 0 {
				e.Errorf("the size %s is not a multiple of %s", size, c.SizeStep)
			}
		}
	})
	h.check(t, "Scope is a word of --topology-key", func(e *env) {
		switch e.caps.Scope {
		case cloud.ScopeRegion, cloud.ScopeZone, cloud.ScopeNode:
		default:
			e.Errorf("Scope = %q", e.caps.Scope)
		}
	})
	h.check(t, "zones of snapshots are only where there are snapshots", func(e *env) {
		if !e.caps.Snapshots && e.caps.SnapshotZones {
			e.Errorf("Capabilities = %+v", e.caps)
		}
	})
}

func (h Harness) testCapacity(t *testing.T) {
	h.check(t, "fault.Unsupported unless Capabilities.Capacity", func(e *env) {
		_, err := e.c.Capacity(e.Context(), "", nil)
		if e.caps.Capacity {
			e.ok(err, `Capacity("")`)
		} else {
			e.want(err, `Capacity("")`, fault.Unsupported)
		}
	})
	h.check(t, "the empty zone means the backend's own zone", func(e *env) {
		if !e.caps.Capacity {
			_, err := e.c.Capacity(e.Context(), e.h.Zones[0], nil)
			e.want(err, "Capacity", fault.Unsupported)
			return
		}
		own := e.capacity("")
		for _, zone := range e.h.Zones {
			if e.near(own, e.capacity(zone)) {
				return
			}
		}
		e.Errorf(`Capacity("") = %s, which is the capacity of none of %q`, own, e.h.Zones)
	})
	h.check(t, "fault.NotFound for a zone that the backend does not serve", func(e *env) {
		want := fault.NotFound
		if !e.caps.Capacity {
			want = fault.Unsupported
		}
		for _, zone := range []string{"no-such-zone", "../" + e.h.Zones[0], e.h.Zones[0] + " "} {
			_, err := e.c.Capacity(e.Context(), zone, nil)
			e.want(err, "Capacity of a zone that is not served", want)
		}
	})
	h.check(t, "fault.InvalidArgument for a parameter that it does not understand", func(e *env) {
		want := fault.InvalidArgument
		if !e.caps.Capacity {
			want = fault.Unsupported
		}
		_, err := e.c.Capacity(e.Context(), e.h.Zones[0], []cloud.Parameter{{Name: "no-such-parameter", Value: "x"}})
		e.want(err, "Capacity of an unknown parameter", want)
	})
	h.check(t, "it falls by a create and returns by a delete", func(e *env) {
		if !e.caps.Capacity {
			return // the subtests above demand fault.Unsupported
		}
		zone := e.h.Zones[0]
		before := e.capacity(zone)
		req := e.request("capacity")
		req.Parameters = e.h.Parameters
		vol := e.create(req)
		if after := e.capacity(zone); !e.near(after, before-vol.Size) {
			e.Errorf("Capacity = %s, then %s after a volume of %s", before, after, vol.Size)
		}
		e.ok(e.c.DeleteVolume(e.Context(), vol.ID), "DeleteVolume")
		if after := e.capacity(zone); !e.near(after, before) {
			e.Errorf("Capacity = %s, then %s after the volume was deleted", before, after)
		}
	})
}

func (h Harness) testCheck(t *testing.T) {
	h.check(t, "it proves that the backend can be reached", func(e *env) {
		e.ok(e.c.Check(e.Context()), "Check")
	})
	if h.Denied == nil {
		return
	}
	h.run(t, "fault.Denied when the credentials are not accepted", func(t *testing.T) {
		e := h.env(t, h.Denied(t))
		e.want(e.c.Check(e.Context()), "Check", fault.Denied)
	})
}

func (e *env) capacity(zone string) cloud.Bytes {
	e.Helper()
	size, err := e.c.Capacity(e.Context(), zone, e.h.Parameters)
	if err != nil {
		e.Fatalf("Capacity(%q) = %v", zone, err)
	}
	return size
}

// near reports whether two capacities are equal except for what other programs use or free meanwhile.
func (e *env) near(a, b cloud.Bytes) bool {
	return max(a-b, b-a) <= e.h.CapacitySlack
}

// requests returns how many requests were sent so far.
func (e *env) requests() int {
	if e.h.Requests == nil {
		return 0
	}
	return e.h.Requests()
}
