package cloudtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func (h Harness) testAttach(t *testing.T) {
	h.attaches(t, "it makes the volume a disk of the node and returns when the cloud shows it there", func(e *env, vol cloud.Volume) {
		e.attach(vol.ID, e.h.Nodes[0])
		e.at(vol.ID, e.h.Nodes[0])
	})
	h.attaches(t, "attached to this node already: no error", func(e *env, vol cloud.Volume) {
		first := e.attach(vol.ID, e.h.Nodes[0])
		if second := e.attach(vol.ID, e.h.Nodes[0]); second != first {
			e.Errorf("Attach = %+v, then %+v", first, second)
		}
		e.at(vol.ID, e.h.Nodes[0])
	})
	h.attaches(t, "attached to another node: fault.Precondition naming that node", func(e *env, vol cloud.Volume) {
		e.attach(vol.ID, e.h.Nodes[0])
		_, err := e.c.Attach(e.Context(), vol.ID, e.h.Nodes[1])
		e.want(err, "Attach to a second node", fault.Precondition)
		e.reason(err, "Attach to a second node", fault.AttachedElsewhere)
		if err != nil && !strings.Contains(err.Error(), string(e.h.Nodes[0])) {
			e.Errorf("%q does not name %s", err, e.h.Nodes[0])
		}
		e.at(vol.ID, e.h.Nodes[0])
	})
	h.attaches(t, "no such volume or node: fault.NotFound", func(e *env, vol cloud.Volume) {
		gone := e.volume("gone")
		e.ok(e.c.DeleteVolume(e.Context(), gone.ID), "DeleteVolume")
		_, err := e.c.Attach(e.Context(), gone.ID, e.h.Nodes[0])
		e.want(err, "Attach of no volume", fault.NotFound)
		_, err = e.c.Attach(e.Context(), vol.ID, e.noNode())
		e.want(err, "Attach to no node", fault.NotFound)
		e.at(vol.ID)
	})
	h.attaches(t, "a volume of another zone than the node's: fault.Precondition", func(e *env, _ cloud.Volume) {
		if len(e.h.Zones) < 2 {
			return // there is no other zone
		}
		req := e.request("far")
		req.Zones = e.h.Zones[1:2]
		far := e.create(req)
		_, err := e.c.Attach(e.Context(), far.ID, e.h.Nodes[0])
		e.want(err, "Attach across zones", fault.Precondition)
		e.reason(err, "Attach across zones", fault.WrongZone)
		e.at(far.ID)
	})
	h.attaches(t, "no free slot: fault.Exhausted", func(e *env, _ cloud.Volume) {
		slots := e.h.Slots
		if slots == 0 || slots > 16 && e.h.Slow {
			return
		}
		for n := range slots + 1 {
			next := e.volume(fmt.Sprintf("slot-%d", n))
			_, err := e.c.Attach(e.Context(), next.ID, e.h.Nodes[0])
			if err == nil {
				continue
			}
			e.want(err, "Attach to a full node", fault.Exhausted)
			e.reason(err, "Attach to a full node", fault.NoSlot)
			e.at(next.ID)
			return
		}
		e.Errorf("%d volumes are attached to a node for %d", slots+1, slots)
	})
}

func (h Harness) testDetach(t *testing.T) {
	h.attaches(t, "it takes the volume off the node and returns when it is free of it", func(e *env, vol cloud.Volume) {
		e.attach(vol.ID, e.h.Nodes[0])
		e.ok(e.c.Detach(e.Context(), vol.ID, e.h.Nodes[0]), "Detach")
		e.at(vol.ID)
		e.attach(vol.ID, e.h.Nodes[1]) // free: another node can have it at once
	})
	h.attaches(t, "the empty node means off whatever node", func(e *env, vol cloud.Volume) {
		e.attach(vol.ID, e.h.Nodes[1])
		e.ok(e.c.Detach(e.Context(), vol.ID, ""), "Detach")
		e.at(vol.ID)
	})
	h.attaches(t, "not attached there, and a volume or node that does not exist: no error", func(e *env, vol cloud.Volume) {
		gone := e.volume("gone")
		e.ok(e.c.DeleteVolume(e.Context(), gone.ID), "DeleteVolume")
		for _, node := range []cloud.NodeID{"", e.h.Nodes[0], e.noNode()} {
			e.ok(e.c.Detach(e.Context(), vol.ID, node), "Detach of a free volume")
			e.ok(e.c.Detach(e.Context(), gone.ID, node), "Detach of no volume")
		}
	})
	h.attaches(t, "it never takes the volume off another node", func(e *env, vol cloud.Volume) {
		e.attach(vol.ID, e.h.Nodes[0])
		e.ok(e.c.Detach(e.Context(), vol.ID, e.h.Nodes[1]), "Detach from another node")
		e.ok(e.c.Detach(e.Context(), vol.ID, e.noNode()), "Detach from no node")
		e.at(vol.ID, e.h.Nodes[0])
	})
	h.attaches(t, "a late second detach leaves a newer attach to another node", func(e *env, vol cloud.Volume) {
		e.attach(vol.ID, e.h.Nodes[0])
		e.ok(e.c.Detach(e.Context(), vol.ID, e.h.Nodes[0]), "Detach")
		e.attach(vol.ID, e.h.Nodes[1])
		e.ok(e.c.Detach(e.Context(), vol.ID, e.h.Nodes[0]), "late Detach")
		e.at(vol.ID, e.h.Nodes[1])
	})
}

// attaches runs a subtest if volumes can be attached, and requires fault.Unsupported if not.
func (h Harness) attaches(t *testing.T, sentence string, test func(e *env, vol cloud.Volume)) {
	t.Helper()
	h.check(t, sentence, func(e *env) {
		vol := e.volume("disk")
		if e.caps.Attach {
			test(e, vol)
			return
		}
		_, err := e.c.Attach(e.Context(), vol.ID, "node")
		e.want(err, "Attach", fault.Unsupported)
		e.want(e.c.Detach(e.Context(), vol.ID, "node"), "Detach", fault.Unsupported)
		e.want(e.c.Detach(e.Context(), vol.ID, ""), "Detach", fault.Unsupported)
		e.at(vol.ID)
	})
}

// noNode returns an id that has the form of a node's, without such a node.
func (e *env) noNode() cloud.NodeID { return e.h.Nodes[0] + "9" }

func (e *env) attach(id cloud.VolumeID, node cloud.NodeID) cloud.Device {
	e.Helper()
	dev, err := e.c.Attach(e.Context(), id, node)
	if err != nil {
		e.Fatalf("Attach(%s, %s) = %v", id, node, err)
	}
	return dev
}

// at fails the test unless the volume is attached to exactly these nodes, sorted, in GetVolume and in the list.
func (e *env) at(id cloud.VolumeID, nodes ...cloud.NodeID) {
	e.Helper()
	if got := e.get(id).AttachedTo; !slices.Equal(got, nodes) {
		e.Errorf("GetVolume shows %s attached to %q, want %q", id, got, nodes)
	}
	if got := e.ids()[id].AttachedTo; !slices.Equal(got, nodes) {
		e.Errorf("ListVolumes shows %s attached to %q, want %q", id, got, nodes)
	}
}
