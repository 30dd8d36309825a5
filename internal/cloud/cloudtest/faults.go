package cloudtest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// short is how long a caller waits for a slow change; long is how long that takes.
const short, long = 500 * time.Millisecond, 2 * time.Second

// world is an account and a controller of it.
type world struct {
	*testing.T
	Crashes

	account Account
	c       cloud.Cloud
	caps    cloud.Capabilities
}

// Faults checks the contract with a cloud that is slow, loses or throttles requests, fails operations, has lists of several pages,
// forbids names, or whose answers come from another program.
func (cr Crashes) Faults(t *testing.T) {
	switch {
	case cr.Names.MaxLen == 0:
		t.Fatal("Crashes.Names is missing: the names that the cloud documents as allowed")
	case cr.Page == 0:
		t.Fatal("Crashes.Page is missing: how many volumes the largest page of a list has")
	case cr.Device == nil:
		t.Fatal("Crashes.Device is missing: how a machine finds a volume")
	case (cr.HTTP == nil) != cr.NoHTTP:
		t.Fatal("Crashes.HTTP is missing: a controller over a transport. A cloud whose API is not HTTP sets NoHTTP instead")
	}
	caps := cr.Fresh(t).Open(t, nil).Capabilities()
	for sentence, play := range cr.faults(caps) {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(cr.world(t, caps)) })
		})
	}
	if cr.HTTP != nil {
		t.Run("no answer that is not the cloud's is believed", cr.disbelieve)
	}
}

func (cr Crashes) world(t *testing.T, caps cloud.Capabilities) *world {
	account := cr.Fresh(t)
	return &world{T: t, Crashes: cr, account: account, c: account.Open(t, nil), caps: caps}
}

// faults returns the tests for the cloud's capabilities.
func (cr Crashes) faults(caps cloud.Capabilities) map[string]func(w *world) {
	all := map[string]func(w *world){
		"a create whose request was lost makes one volume":  func(w *world) { w.lostCreate(Fault{LoseRequest: true}) },
		"a create whose answer was lost makes one volume":   func(w *world) { w.lostCreate(Fault{LoseAnswer: true}) },
		"a change whose request was lost is repeated":       func(w *world) { w.changes(Fault{LoseRequest: true}, fault.Uncertain) },
		"a change whose answer was lost is repeated":        func(w *world) { w.changes(Fault{LoseAnswer: true}, fault.Uncertain) },
		"a change that the API has no budget for waits":     func(w *world) { w.changes(Fault{Throttle: true}, fault.None) },
		"a change that failed is unavailable, and repeated": func(w *world) { w.changes(Fault{Fail: true}, fault.Unavailable) },
		"a create that failed leaves nothing behind":        (*world).failedCreate,
		"a create waits for the budget of the API":          (*world).throttledCreate,
		"a volume is found once it is ready":                (*world).unreadyVolume,
		"a caller that goes does not cut a create":          (*world).abandonedCreate,
		"a create is answered with what fits its request":   (*world).otherCreate,
		"names that the cloud forbids are mapped":           (*world).forbiddenNames,
		"a list is complete while its pages change":         (*world).changingPages,
		"each call is one write where nothing goes wrong":   (*world).usualCost,
	}
	if caps.Attach {
		all["an attach waits for a detach that is under way"] = func(w *world) { w.losing((*world).attachDuringDetach) }
		all["a detach waits for an attach that is under way"] = func(w *world) {
			w.losing(func(w *world, next cloud.Cloud) { w.detachDuringAttach(next, w.Node) })
		}
		all["a detach from wherever it is waits for an attach that is under way"] = func(w *world) {
			w.losing(func(w *world, next cloud.Cloud) { w.detachDuringAttach(next, "") })
		}
		all["an attach that arrives late lands before the next detach"] = (*world).lateAttach
		all["a change of another controller on the node is a delay"] = (*world).busyNode
		all["an attach of what is attached is settled by its state"] = (*world).attachedBefore
		all["a detach from a node that is gone waits for the record"] = (*world).goneNode
		all["many attaches to one node queue"] = (*world).crowdedNode
		all["a refusal that nothing explains is not repeated for long"] = (*world).unexplained
	}
	if caps.Expand {
		all["a growth waits for one that is under way and will fail"] = func(w *world) { w.losing((*world).expandDuringExpand) }
		all["a growth that fails does not show in what is found"] = func(w *world) { w.losing((*world).findDuringExpand) }
	}
	return all
}

// arm applies the fault to the next change of this kind. The test fails if it ends without that.
func (w *world) arm(next Change, f Fault) {
	w.Helper()
	struck := w.account.Arm(next, f)
	w.Cleanup(func() {
		if !struck() {
			w.Errorf("the account has done %+v to no %s: Account.Arm has to", f, next)
		}
	})
}

// volume creates a volume.
func (w *world) volume(name string) cloud.VolumeID {
	w.Helper()
	return CreateVolume(w.T, w.c, w.Request(name)).ID
}

// at fails the test unless the volume is attached to this node ("": to none), and still is when no change can be pending. why is
// the usual reason of a failure.
func (w *world) at(id cloud.VolumeID, node cloud.NodeID, why ...string) {
	w.Helper()
	for range 2 {
		if got := w.account.At(id); got != node {
			w.Errorf("volume %s is on node %q, want %q%s", id, got, node, strings.Join(append([]string{""}, why...), ": "))
		}
		pass(2 * long)
	}
}

// pass lets simulated time pass.
func pass(d time.Duration) { <-time.After(d) }

// holds fails the test unless the account has this many volumes.
func (w *world) holds(volumes int) {
	w.Helper()
	left(volumes, 0)(w.T, w.account, w.c, "")
}

// briefly makes a call with a context that ends before a slow change.
func (w *world) briefly(call func(ctx context.Context) error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), short)
	defer cancel()
	began := time.Now()
	err := call(ctx)
	if took := time.Since(began); took > short+short/2 {
		w.Errorf("the call took %s, its context %s", took, short)
	}
	Want(w.T, err, fault.Uncertain)
	if !errors.Is(err, context.DeadlineExceeded) {
		w.Errorf("%v does not match the context's error", err)
	}
}

// Failure C1: if the request or the answer of a create is lost, the repeat finds the one volume.
func (w *world) lostCreate(lost Fault) {
	w.arm(Create, lost)
	_, err := w.c.CreateVolume(w.Context(), w.Request("a"))
	Want(w.T, err, fault.Uncertain)
	first := CreateVolume(w.T, w.Stack(w.c), w.Request("a"))
	second := CreateVolume(w.T, w.Stack(w.c), w.Request("a"))
	if !reflect.DeepEqual(first, second) {
		w.Errorf("the repeats answer\n%+v\n%+v", first, second)
	}
	w.holds(1)
}

// changes makes each change of a volume, with a fault of the first request. The error has the kind, or the backend has repeated the
// request; no change is reported as a success that was not done.
func (w *world) changes(f Fault, kind fault.Kind) {
	id, size := w.volume("a"), 2*w.Request("a").Size
	do := func(change Change, call func() error) {
		w.Helper()
		w.arm(change, f)
		err := call()
		if err != nil {
			Want(w.T, err, kind)
			err = Repeat(call)
		}
		Must(w.T, err)
	}
	attach := func() error { _, err := w.c.Attach(w.Context(), id, w.Node); return err }
	if w.caps.Attach {
		do(Attach, attach)
		w.at(id, w.Node)
		do(Detach, func() error { return w.c.Detach(w.Context(), id, w.Node) })
		w.at(id, "")
	}
	if w.caps.Expand {
		do(Expand, func() error {
			exp, err := w.c.ExpandVolume(w.Context(), id, size)
			if err == nil && exp.Size != size {
				w.Errorf("ExpandVolume = %+v, want %s", exp, size)
			}
			return err
		})
		if vol, err := w.c.GetVolume(w.Context(), id); err != nil || vol.Size != size {
			w.Errorf("GetVolume = %+v, %v, want %s", vol, err, size)
		}
	}
	if f.Fail {
		return // not every cloud has an operation for a delete
	}
	do(Delete, func() error { return w.c.DeleteVolume(w.Context(), id) })
	w.holds(0)
}

func (w *world) failedCreate() {
	w.arm(Create, Fault{Fail: true})
	if vol, err := w.c.CreateVolume(w.Context(), w.Request("a")); err == nil {
		w.Errorf("CreateVolume = %+v, although it failed", vol)
	}
	w.holds(0)
	Must(w.T, Repeat(func() error { _, err := w.Stack(w.c).CreateVolume(w.Context(), w.Request("a")); return err }))
	w.holds(1)
}

func (w *world) throttledCreate() {
	w.arm(Create, Fault{Throttle: true})
	w.volume("a")
	w.holds(1)
}

func (w *world) unreadyVolume() {
	w.arm(Create, Fault{Takes: long})
	began := time.Now()
	w.briefly(func(ctx context.Context) error { _, err := w.c.CreateVolume(ctx, w.Request("a")); return err })
	next := w.account.Open(w.T, nil)
	var found cloud.Volume
	Until(w.T, "the volume is found", func() bool {
		vol, err := next.FindVolume(w.Context(), "a")
		found = vol
		return fault.Of(err) != fault.NotFound && fault.Of(err) != fault.Unavailable
	})
	if took := time.Since(began); took < long || found.ID == "" {
		w.Errorf("FindVolume = %+v after %s, and it is ready after %s", found, took, long)
	}
}

// Failure C1: when its context ends, a call returns at once, and the write that was sent continues.
func (w *world) abandonedCreate() {
	Must(w.T, w.c.Check(w.Context())) // then there is a connection
	w.arm(Create, Fault{DelayAnswer: long})
	w.briefly(func(ctx context.Context) error { _, err := w.c.CreateVolume(ctx, w.Request("a")); return err })
	CreateVolume(w.T, w.Stack(w.c), w.Request("a"))
	w.holds(1)
}

// Failure C1: a create that continues without its caller is the answer to its repeat only, and not to a request with the same name
// and other properties.
func (w *world) otherCreate() {
	larger, elsewhere := w.Request("a"), w.Request("a")
	larger.Size, elsewhere.Zones = 2*larger.Size, w.Elsewhere
	for _, req := range []cloud.CreateVolumeRequest{larger, elsewhere} {
		one := w.world(w.T, w.caps)
		one.arm(Create, Fault{Takes: long})
		one.briefly(func(ctx context.Context) error { _, err := one.c.CreateVolume(ctx, one.Request("a")); return err })
		if vol, err := w.Stack(one.c).CreateVolume(w.Context(), req); err == nil && (vol.Size != req.Size || !slices.Contains(req.Zones, vol.Zone)) {
			w.Errorf("CreateVolume(%+v) = %+v: it got the answer of a create that still runs", req, vol)
		}
	}
}

// losing runs play with a second controller that loses no request, and with one that loses the n-th request, for the first few n: a
// read that fails proves nothing.
func (w *world) losing(play func(w *world, next cloud.Cloud)) {
	for n := range 6 {
		one := w.world(w.T, w.caps)
		var requests atomic.Int64
		play(one, one.account.Open(w.T, func(send func() error) error {
			if requests.Add(1) == int64(n) {
				return errLost
			}
			return send()
		}))
		if w.Failed() {
			w.Fatalf("that was the run in which the second controller lost its request %d (0: it lost none)", n)
		}
	}
}

var errLost = errors.New("the connection was cut")

// Failure A1: an attachment that an earlier detach is still removing does not count.
func (w *world) attachDuringDetach(next cloud.Cloud) {
	id := w.attached(w.T, w.c)
	w.arm(Detach, Fault{Takes: long})
	w.briefly(func(ctx context.Context) error { return w.c.Detach(ctx, id, w.Node) })
	Must(w.T, w.attachTo(w.T, next, id, w.Node))
	w.at(id, w.Node)
}

// Failure A1: a volume that is not attached is free only if no attach is pending; and a late detach does not detach it from another
// node.
func (w *world) detachDuringAttach(next cloud.Cloud, from cloud.NodeID) {
	id := w.volume("a")
	w.arm(Attach, Fault{Takes: long})
	w.briefly(func(ctx context.Context) error { _, err := w.c.Attach(ctx, id, w.Node); return err })
	Must(w.T, Repeat(func() error { return next.Detach(w.Context(), id, from) }))
	w.at(id, "", unseenAttach)
	Must(w.T, w.attachTo(w.T, next, id, w.Second))
	Must(w.T, w.c.Detach(w.Context(), id, w.Node))
	w.at(id, w.Second, "Traits.DetachNamesMachine is set, and a detach takes a volume off another node")
}

// unseenAttach is why a volume is attached after a detach.
const unseenAttach = "the detach has not waited for the attach that was under way; if the volume shows no such attach, API.Volume adds its node"

// Failure A1: an attach takes effect after its caller's context has ended.
func (w *world) lateAttach() {
	id := w.volume("a")
	w.arm(Attach, Fault{Delay: long})
	w.briefly(func(ctx context.Context) error { _, err := w.c.Attach(ctx, id, w.Node); return err })
	Must(w.T, w.c.Detach(w.Context(), id, w.Node))
	w.at(id, "", unseenAttach)
}

// Failure E3: a size that the cloud shows during a growth is not an answer.
func (w *world) expandDuringExpand(next cloud.Cloud) {
	id, size := w.volume("a"), 2*w.Request("a").Size
	w.arm(Expand, Fault{Takes: long, Fail: true})
	w.briefly(func(ctx context.Context) error { _, err := w.c.ExpandVolume(ctx, id, size); return err })
	Must(w.T, Repeat(func() error { _, err := next.ExpandVolume(w.Context(), id, size); return err }))
	pass(2 * long)
	if vol, err := w.c.GetVolume(w.Context(), id); err != nil || vol.Size != size {
		w.Errorf("GetVolume shows %s (%v), want %s: the size that a growth showed and took back was believed (block.Volume.Hindered)", vol.Size, err, size)
	}
}

// Failure C5: a repeated create never returns a size that a growth shows and takes back when it fails.
func (w *world) findDuringExpand(next cloud.Cloud) {
	size := w.Request("a").Size
	id := w.volume("a")
	w.arm(Expand, Fault{Takes: long, Fail: true})
	w.briefly(func(ctx context.Context) error { _, err := w.c.ExpandVolume(ctx, id, 2*size); return err })
	Must(w.T, Repeat(func() error {
		vol, err := next.FindVolume(w.Context(), "a")
		if err == nil && vol.Size != size {
			w.Errorf("FindVolume shows %s while it grows, want %s: it has to wait until nothing is under way (Tracker.Running)", vol.Size, size)
		}
		return err
	}))
}

func (w *world) busyNode() {
	mine, theirs := w.volume("a"), w.volume("b")
	other := w.account.Open(w.T, nil)
	w.arm(Attach, Fault{Takes: long})
	done := make(chan error, 1)
	go func() { _, err := other.Attach(w.Context(), theirs, w.Node); done <- err }()
	pass(short)
	AttachTo(w.T, w.c, mine, w.Node)
	Must(w.T, <-done)
	w.at(mine, w.Node)
	w.at(theirs, w.Node)
}
