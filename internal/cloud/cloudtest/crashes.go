package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Crashes tests that one controller continues where another has ended: the account is the only state.
type Crashes struct {
	// Fresh returns a new account.
	Fresh func(t *testing.T) Account
	// Stack wraps a backend in the program's decorators.
	Stack func(c cloud.Cloud) cloud.Cloud
	// Request returns the request for the smallest volume with a name.
	Request func(name string) cloud.CreateVolumeRequest
	// Node and Second are nodes. Elsewhere are zones of which only a later one can serve a request.
	Node, Second cloud.NodeID
	Elsewhere    []string
	// Names are the names that the cloud's documentation allows for volumes, independently of the backend's own rule. Page is the
	// maximum number of volumes in a page of a list.
	Names cloud.NameRule
	Page  int
	// Device returns how a node identifies a volume. Reads is the maximum number of reads of a create, an attach, a growth, a
	// detach and a delete together.
	Device func(vol cloud.Volume) cloud.Device
	Reads  int
	// HTTP returns a controller of an account from Fresh whose requests go through the transport that over returns. NoHTTP: the
	// cloud's API is not HTTP.
	HTTP   func(t *testing.T, account Account, over func(base http.RoundTripper) http.RoundTripper) cloud.Cloud
	NoHTTP bool
	// Empty are the changes whose success an HTTP API answers with {}.
	Empty []Change
	// Simulated runs the tests in simulated time, which requires that the accounts are within the process.
	Simulated bool
}

// in runs play in the time of the tests.
func (cr Crashes) in(t *testing.T, play func(t *testing.T)) {
	t.Helper()
	if cr.Simulated {
		synctest.Test(t, play)
	} else {
		play(t)
	}
}

// step is a call during which a controller can be killed, its preparation, and a check of the result after a new controller has
// repeated it.
type step struct {
	// needs reports whether the cloud supports the call; nil: every cloud does.
	needs  func(caps cloud.Capabilities) bool
	before func(t *testing.T, c cloud.Cloud) cloud.VolumeID
	call   func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error
	// then is the call to the controller after a killed one; nil: call.
	then  func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error
	after func(t *testing.T, account Account, c cloud.Cloud, id cloud.VolumeID)
}

// Kill kills a controller at each of its requests in turn, before and after the request's effect. The same call to a new controller
// has to converge, without orphans and duplicates.
func (cr Crashes) Kill(t *testing.T) {
	cr.each(t, func(t *testing.T, s step) {
		cuts := 0
		for _, after := range []bool{false, true} {
			for n, killed := 1, true; killed; n++ {
				cr.in(t, func(t *testing.T) { killed = cr.killAt(t, s, n, after) })
				if killed {
					cuts++
				}
			}
		}
		if cuts < 2 {
			t.Errorf("the controller was killed %d times only", cuts)
		}
	})
}

// killAt kills a controller at its n-th request, and reports whether there was such a request.
func (cr Crashes) killAt(t *testing.T, s step, n int, after bool) bool {
	t.Helper()
	account := cr.Fresh(t)
	id := s.before(t, account.Open(t, nil))
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	knife := &cut{at: n, after: after, kill: kill}
	made := &creates{ids: map[string][]cloud.VolumeID{}}
	err := s.call(ctx, made.of(cr.Stack(account.Open(t, knife.request))), id)
	if !knife.reached() {
		if err != nil {
			t.Fatalf("without a kill: %v", err)
		}
		return false
	}
	kill()
	next := account.Open(t, nil)
	then := s.then
	if then == nil {
		then = s.call
	}
	if err := Repeat(func() error { return then(t.Context(), made.of(cr.Stack(next)), id) }); err != nil {
		t.Fatalf("killed at request %d (after its effect: %v): %v", n, after, err)
	}
	s.after(t, account, next, id)
	made.hold(t, next)
	return true
}

// Race makes the same call to two controllers of one account at the same time: correctness must not depend on the locks and queues
// of one process. Their requests take time, so that they interleave.
func (cr Crashes) Race(t *testing.T) {
	cr.each(t, func(t *testing.T, s step) {
		if s.then == nil { // otherwise the two calls differ
			cr.in(t, func(t *testing.T) { cr.race(t, s) })
		}
	})
}

func (cr Crashes) race(t *testing.T, s step) {
	t.Helper()
	account := cr.Fresh(t)
	id := s.before(t, account.Open(t, nil))
	slow := func(send func() error) error {
		pass(time.Millisecond)
		defer pass(time.Millisecond)
		return send()
	}
	controllers := []cloud.Cloud{account.Open(t, slow), account.Open(t, slow)}
	var all sync.WaitGroup
	made := &creates{ids: map[string][]cloud.VolumeID{}}
	for _, c := range controllers {
		all.Go(func() {
			if err := Repeat(func() error { return s.call(t.Context(), made.of(cr.Stack(c)), id) }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s.after(t, account, controllers[0], id)
	made.hold(t, controllers[0])
}

// each runs play for every step that the cloud supports.
func (cr Crashes) each(t *testing.T, play func(t *testing.T, s step)) {
	caps := cr.Fresh(t).Open(t, nil).Capabilities()
	for name, s := range cr.steps() {
		if s.needs != nil && !s.needs(caps) {
			continue // the contract suite demands the refusal
		}
		t.Run(name, func(t *testing.T) { play(t, s) })
	}
}

func (cr Crashes) steps() map[string]step {
	free, there := cr.origin, cr.attached
	attaches := func(caps cloud.Capabilities) bool { return caps.Attach }
	attach := func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
		_, err := c.Attach(ctx, id, cr.Node)
		return err
	}
	return map[string]step{
		"create": {before: free, call: cr.create(func(*cloud.CreateVolumeRequest, cloud.VolumeID) {}), after: left(2, 0)},
		"create in a second zone": {before: free, call: cr.create(func(r *cloud.CreateVolumeRequest, _ cloud.VolumeID) {
			r.Zones = cr.Elsewhere
		}), after: left(2, 0)},
		"clone to a larger size": {needs: func(caps cloud.Capabilities) bool { return caps.Clones }, before: free, call: cr.create(func(r *cloud.CreateVolumeRequest, id cloud.VolumeID) {
			r.Source.Volume, r.Size = id, 2*r.Size
		}), after: left(2, 0)},
		"attach": {needs: attaches, before: free, call: attach, after: on(cr.Node)},
		// A pending attach must not take effect after a detach that has succeeded.
		"attach, and then detach and delete": {needs: attaches, before: free, call: attach, then: cr.detachAndDelete(), after: left(0, 0)},
		"detach": {needs: attaches, before: there, call: func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.Detach(ctx, id, cr.Node)
		}, after: on("")},
		"detach from wherever it is": {needs: attaches, before: there, call: func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.Detach(ctx, id, "")
		}, after: on("")},
		"expand while attached": {needs: func(caps cloud.Capabilities) bool { return caps.Attach && caps.Expand }, before: there, call: func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			size := 2 * cr.Request("origin").Size
			exp, err := c.ExpandVolume(ctx, id, size)
			if err == nil && exp.Size != size {
				return fmt.Errorf("it answers %+v", exp)
			}
			return err
		}, after: on(cr.Node)},
		"snapshot": {needs: func(caps cloud.Capabilities) bool { return caps.Snapshots }, before: free, call: func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.CreateSnapshot(ctx, cloud.CreateSnapshotRequest{Name: "s", Volume: id})
			return err
		}, after: left(1, 1)},
		"delete": {before: free, call: func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.DeleteVolume(ctx, id)
		}, after: left(0, 0)},
	}
}

func (cr Crashes) origin(t *testing.T, c cloud.Cloud) cloud.VolumeID {
	t.Helper()
	return CreateVolume(t, c, cr.Request("origin")).ID
}

func (cr Crashes) attached(t *testing.T, c cloud.Cloud) cloud.VolumeID {
	t.Helper()
	id := cr.origin(t, c)
	AttachTo(t, c, id, cr.Node)
	return id
}

// detachAndDelete repeats the detach until it succeeds, and then deletes.
func (cr Crashes) detachAndDelete() func(context.Context, cloud.Cloud, cloud.VolumeID) error {
	return func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
		if err := Repeat(func() error { return c.Detach(ctx, id, cr.Node) }); err != nil {
			return err
		}
		err := c.DeleteVolume(ctx, id)
		if fault.Of(err) == fault.Precondition {
			return errors.New("it is attached again: " + err.Error()) // without the kind, so that Repeat does not repeat it
		}
		return err
	}
}

func (cr Crashes) create(edit func(*cloud.CreateVolumeRequest, cloud.VolumeID)) func(context.Context, cloud.Cloud, cloud.VolumeID) error {
	return func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
		req := cr.Request("made")
		edit(&req, id)
		vol, err := c.CreateVolume(ctx, req)
		if err == nil && (vol.Size < req.Size || vol.Source != req.Source) {
			return fmt.Errorf("it answers %+v for %+v", vol, req)
		}
		return err
	}
}

// left fails the test unless the account has this many of each.
func left(volumes, snapshots int) func(*testing.T, Account, cloud.Cloud, cloud.VolumeID) {
	return func(t *testing.T, account Account, c cloud.Cloud, _ cloud.VolumeID) {
		t.Helper()
		if v, s := account.Left(t, c); v != volumes || s != snapshots {
			t.Errorf("the account holds %d volumes and %d snapshots, want %d and %d", v, s, volumes, snapshots)
		}
	}
}

// on fails the test unless the volume is attached to exactly this node ("": to none).
func on(node cloud.NodeID) func(*testing.T, Account, cloud.Cloud, cloud.VolumeID) {
	return func(t *testing.T, account Account, _ cloud.Cloud, id cloud.VolumeID) {
		t.Helper()
		if got := account.At(id); got != node {
			t.Errorf("volume %s is on node %q, want %q", id, got, node)
		}
	}
}

// Repeat repeats a call as a sidecar does until it succeeds. It returns an error that a repeat cannot change.
func Repeat(call func() error) error {
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
		err := call()
		switch fault.Of(err) {
		case fault.Unavailable, fault.Uncertain, fault.Busy, fault.Precondition:
		default:
			return err
		}
		if time.Now().After(deadline) {
			return errors.Join(errors.New("the repeats do not converge"), err)
		}
	}
}

// cut kills a controller at its n-th request: before it is sent, or after it has taken effect. No request is sent after that.
type cut struct {
	at    int
	after bool
	kill  context.CancelFunc

	mu    sync.Mutex
	count int
}

var errKilled = errors.New("the controller was killed")

// request sends the requests before the kill.
func (c *cut) request(send func() error) error {
	c.mu.Lock()
	c.count++
	n := c.count
	c.mu.Unlock()
	switch {
	case n < c.at:
		return send()
	case n == c.at && c.after:
		_ = send() // the answer is lost
	}
	c.kill()
	return errKilled
}

func (c *cut) reached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count >= c.at
}
