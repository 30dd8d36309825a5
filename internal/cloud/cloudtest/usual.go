package cloudtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Failure P1: without faults each call is one write, and reads are few.
func (w *world) usualCost() {
	c, writes := w.Stack(w.c), 2
	id := w.volume("a")
	if w.caps.Attach {
		AttachTo(w.T, c, id, w.Node)
		writes += 2
	}
	if w.caps.Expand {
		_, err := c.ExpandVolume(w.Context(), id, 2*w.Request("a").Size)
		Must(w.T, err)
		writes++
	}
	if w.caps.Attach {
		Must(w.T, c.Detach(w.Context(), id, w.Node))
	}
	Must(w.T, c.DeleteVolume(w.Context(), id))
	if r, wr := w.account.Requests(); wr != writes || r > w.Reads {
		w.Errorf("%d writes and %d reads for %d calls, want one write for each and at most %d reads (Crashes.Reads)", wr, r, writes, w.Reads)
	}
}

// Failures A2 and A9: for a volume that is attached already, the state decides: attached to this node is success, and the error for
// another names it. A stale list changes nothing about that.
func (w *world) attachedBefore() {
	vol := CreateVolume(w.T, w.c, w.Request("a"))
	Must(w.T, w.attachTo(w.T, w.account.Open(w.T, nil), vol.ID, w.Second))
	w.account.StaleLists()
	_, err := w.c.Attach(w.Context(), vol.ID, w.Node)
	Want(w.T, err, fault.Precondition, string(w.Second))
	dev, err := w.c.Attach(w.Context(), vol.ID, w.Second)
	if want := w.Device(vol); err != nil || dev != want {
		w.Errorf("Attach where it is = %+v, %v, want %+v (Crashes.Device)", dev, err, want)
	}
	Must(w.T, w.c.Detach(w.Context(), vol.ID, w.Second))
	_, err = w.c.Attach(w.Context(), vol.ID, w.Node)
	Must(w.T, err)
	w.at(vol.ID, w.Node)
}

// Failures A3 and A11: a deleted node frees its volumes, and Detach succeeds only when the volume's own record shows that.
func (w *world) goneNode() {
	id := w.attached(w.T, w.c)
	w.account.Remove(w.Node, short)
	if at := w.account.At(id); at != w.Node {
		w.Errorf("the record names node %q right after the removal, want %q: Account.Remove has to", at, w.Node)
	}
	detach := func() error {
		err := w.Stack(w.c).Detach(w.Context(), id, w.Node)
		if at := w.account.At(id); err == nil && at != "" {
			w.Errorf("Detach succeeded while the record names node %q", at)
		}
		return err
	}
	if err := detach(); err != nil {
		Want(w.T, err, fault.Unavailable)
	}
	Must(w.T, Repeat(detach))
	_, err := w.c.Attach(w.Context(), id, w.Node)
	Want(w.T, err, fault.NotFound, "no such")
	Must(w.T, w.attachTo(w.T, w.c, id, w.Second))
	w.at(id, w.Second)
}

// Many attaches to one node wait in the driver's queue instead of colliding in the cloud.
func (w *world) crowdedNode() {
	var ids []cloud.VolumeID
	for n := range 5 {
		ids = append(ids, w.volume(fmt.Sprintf("v%d", n)))
	}
	_, before := w.account.Requests()
	AtOnce(w.T, len(ids), func(n int) error { _, err := w.c.Attach(w.Context(), ids[n], w.Node); return err })
	if _, after := w.account.Requests(); after-before != len(ids) {
		w.Errorf("%d writes for %d attaches", after-before, len(ids))
	}
}

// Failures P1 and E4: a refusal that the state does not explain, because its cause is not in the API, is returned with the cloud's
// message after a few attempts; one of a growth may be final at once. Otherwise a few such volumes would use up the API budget
// until their callers give up. The error does not count as one about the attachment, so that no workload is scaled down without
// need.
func (w *world) unexplained() {
	const words = "the moon is full"
	for change, call := range map[Change]func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error{
		Attach: func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.Attach(ctx, id, w.Second)
			return err
		},
		Detach: func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error { return c.Detach(ctx, id, w.Node) },
		Expand: func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.ExpandVolume(ctx, id, 2*w.Request("a").Size)
			return err
		},
		Delete: func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error { return c.DeleteVolume(ctx, id) },
	} {
		one := w.world(w.T, w.caps)
		id := one.volume("a")
		if change == Detach || change == Expand {
			Must(w.T, one.attachTo(w.T, one.c, id, w.Node))
		}
		one.arm(change, Fault{Refuse: words})
		_, before := one.account.Requests()
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		err := call(ctx, one.c, id)
		_, after := one.account.Requests()
		kind := fault.Unavailable
		if change == Expand && fault.Of(err) == fault.Precondition {
			kind = fault.Precondition
		}
		if Want(w.T, err, kind, words); err != nil && strings.Contains(err.Error(), "scale the workload") {
			w.Errorf("the answer to %s tells to scale down: %v", change, err)
		}
		if n := after - before; ctx.Err() != nil || n > 5 || (n == 1) != (kind == fault.Precondition) {
			w.Errorf("%s was asked for %d times (%v), want a few", change, n, ctx.Err())
		}
		cancel()
	}
}
