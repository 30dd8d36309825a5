package cloudtest

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// impossible returns ids that no backend can have made of this one. A careless backend would turn each into a request for another
// object.
func impossible(id string) []string {
	return []string{
		"", " ", ".", "..", "/",
		"../volumes/" + id, "../" + id, "./" + id, "/" + id, id + "/", id + "/..", id + "/../" + id,
		"%2e%2e/" + id, id + "%00", id + "\x00", id + "\n",
		id + "?force=1", id + "#x", id + "&x=y", id + ";x",
		" " + id, id + " ", "+" + id, "\u0442\u043e\u043c" + id, id + "\u200b",
		strings.Repeat("x", 10<<10), id + strings.Repeat("0", 10<<10),
	}
}

// missing returns ids of the same form as this one, without an object.
func missing(id string) []string {
	return []string{"0" + id, id[:len(id)-1], id[1:], id + "9"}
}

func (h Harness) testIDs(t *testing.T) {
	h.check(t, "an id that this backend cannot have made is answered like a missing one, and nothing changes", func(e *env) {
		vol := e.volume("target")
		before := e.get(vol.ID)
		for _, id := range impossible(string(vol.ID)) {
			e.volumeID(cloud.VolumeID(id), vol.Size)
		}
		for _, id := range missing(string(vol.ID)) {
			e.volumeID(cloud.VolumeID(id), vol.Size, e.afar()...)
		}
		if after := e.get(vol.ID); !reflect.DeepEqual(before, after) {
			e.Errorf("the volume is now %+v, it was %+v", after, before)
		}
		e.left(vol.ID)
	})
	h.check(t, "for an id that this backend cannot have made no request leaves the program", func(e *env) {
		vol := e.volume("target")
		for _, id := range impossible(string(vol.ID)) {
			before := e.requests()
			e.volumeID(cloud.VolumeID(id), vol.Size)
			if e.caps.Attach {
				_, err := e.c.Attach(e.Context(), vol.ID, cloud.NodeID(id))
				e.want(err, "Attach to a hostile node", fault.NotFound, fault.InvalidArgument)
			}
			if n := e.requests() - before; n != 0 {
				e.Errorf("%d requests were made for the id %.80q", n, id)
			}
		}
	})
	h.check(t, "a node that cannot exist is answered like a missing one", func(e *env) {
		if !e.caps.Attach {
			return // another subtest requires fault.Unsupported
		}
		vol := e.volume("disk")
		node := string(e.h.Nodes[0])
		for _, id := range append(impossible(node), missing(node)...) {
			if id == string(e.h.Nodes[1]) || id == "" { // for Detach "" means every node
				continue
			}
			_, err := e.c.Attach(e.Context(), vol.ID, cloud.NodeID(id))
			e.want(err, "Attach to a hostile node", fault.NotFound, fault.InvalidArgument)
			e.attach(vol.ID, e.h.Nodes[0])
			e.want(e.c.Detach(e.Context(), vol.ID, cloud.NodeID(id)), "Detach from a hostile node", fault.None, fault.NotFound, fault.InvalidArgument)
			e.at(vol.ID, e.h.Nodes[0])
			e.ok(e.c.Detach(e.Context(), vol.ID, e.h.Nodes[0]), "Detach")
		}
	})
	h.snapshots(t, "a snapshot that cannot exist is answered like a missing one", func(e *env, vol cloud.Volume) {
		snap := e.snapshot("target", vol.ID)
		for _, id := range impossible(string(snap.ID)) {
			e.snapshotID(cloud.SnapshotID(id))
		}
		for _, id := range missing(string(snap.ID)) {
			e.snapshotID(cloud.SnapshotID(id), e.afar()...)
		}
		e.snapshotsLeft(snap.ID)
		e.left(vol.ID)
	})
}

// afar returns the kinds that are also allowed for a slightly changed id, because it may be an id of another place.
func (e *env) afar() []fault.Kind {
	if e.h.Elsewhere.Volume == "" {
		return nil
	}
	return []fault.Kind{fault.Precondition, fault.Exhausted}
}

// snapshotID passes one hostile id to every method that takes a snapshot's. more are the additional kinds that are allowed if the
// id may be one of another place.
func (e *env) snapshotID(id cloud.SnapshotID, more ...fault.Kind) {
	e.Helper()
	lost := append([]fault.Kind{fault.NotFound, fault.InvalidArgument}, more...)
	_, err := e.c.GetSnapshot(e.Context(), id)
	e.want(err, "GetSnapshot of a hostile id", fault.NotFound, fault.InvalidArgument)
	e.want(e.c.DeleteSnapshot(e.Context(), id), "DeleteSnapshot of a hostile id", append(lost, fault.None)...)
	if id == "" {
		return // no source at all
	}
	req := e.request("from a hostile snapshot")
	req.Source.Snapshot = id
	_, err = e.c.CreateVolume(e.Context(), req)
	e.want(err, "CreateVolume from a hostile snapshot", lost...)
}

// volumeID passes one hostile id to every method that takes a volume's. more are the additional kinds that are allowed if the id
// may be one of another place.
func (e *env) volumeID(id cloud.VolumeID, size cloud.Bytes, more ...fault.Kind) {
	e.Helper()
	ctx := e.Context()
	lost := append([]fault.Kind{fault.NotFound, fault.InvalidArgument}, more...)
	harmless := append([]fault.Kind{fault.None}, lost...)
	_, err := e.c.GetVolume(ctx, id)
	e.want(err, "GetVolume of a hostile id", fault.NotFound, fault.InvalidArgument)
	e.want(e.c.DeleteVolume(ctx, id), "DeleteVolume of a hostile id", harmless...)
	if e.caps.Expand {
		_, err = e.c.ExpandVolume(ctx, id, size+e.caps.SizeStep)
		e.want(err, "ExpandVolume of a hostile id", lost...)
	}
	if e.caps.Modify {
		e.want(e.modify(id, cloud.Tag{Key: "team", Value: "hostile"}), "ModifyVolume of a hostile id", lost...)
	}
	if e.caps.Attach {
		_, err = e.c.Attach(ctx, id, e.h.Nodes[0])
		e.want(err, "Attach of a hostile id", lost...)
		e.want(e.c.Detach(ctx, id, e.h.Nodes[0]), "Detach of a hostile id", harmless...)
		e.want(e.c.Detach(ctx, id, ""), "Detach of a hostile id", harmless...)
	}
	if e.caps.Snapshots {
		_, err = e.c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: "hostile", Volume: id})
		e.want(err, "CreateSnapshot of a hostile id", lost...)
		if id != "" { // which means all volumes
			list, err := e.c.ListSnapshots(ctx, id, cloud.Page{})
			e.want(err, "ListSnapshots of a hostile id", harmless...)
			if len(list.Snapshots) != 0 {
				e.Errorf("ListSnapshots(%.80q) = %+v", id, list.Snapshots)
			}
		}
	}
	if id != "" { // which means no source at all
		req := e.request("from a hostile volume")
		req.Source.Volume = id
		_, err = e.c.CreateVolume(ctx, req)
		e.want(err, "CreateVolume from a hostile id", lost...)
	}
}
