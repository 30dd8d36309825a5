package digitalocean_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
)

// cut is the transport of a controller that is killed at its n-th request: before it leaves, or after it
// has had its effect. Nothing leaves after that.
type cut struct {
	base  http.RoundTripper
	at    int
	after bool
	kill  context.CancelFunc

	mu    sync.Mutex
	count int
}

var errKilled = errors.New("the controller was killed")

func (c *cut) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.count++
	n := c.count
	c.mu.Unlock()
	switch {
	case n < c.at:
		return c.base.RoundTrip(r)
	case n == c.at && c.after:
		if res, err := c.base.RoundTrip(r); err == nil {
			_ = res.Body.Close()
		}
	}
	c.kill()
	return nil, errKilled
}

func (c *cut) reached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count >= c.at
}

// A step is a call that a controller may be killed in, what comes before it, and what has to be true after
// a new controller has repeated it.
type step struct {
	before func(t *testing.T, c cloud.Cloud) cloud.VolumeID
	call   func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error
	after  func(t *testing.T, account *emulator.Cloud, c cloud.Cloud, id cloud.VolumeID)
}

func origin(t *testing.T, c cloud.Cloud) cloud.VolumeID { return volume(t, c, "origin").ID }

func attached(t *testing.T, c cloud.Cloud) cloud.VolumeID {
	id := origin(t, c)
	_, err := c.Attach(t.Context(), id, node1)
	must(t, err)
	return id
}

// left fails the test unless the account holds this many of each.
func left(volumes, snapshots int) func(*testing.T, *emulator.Cloud, cloud.Cloud, cloud.VolumeID) {
	return func(t *testing.T, account *emulator.Cloud, c cloud.Cloud, _ cloud.VolumeID) {
		t.Helper()
		if d, ok := c.(*digitalocean.Cloud); ok {
			must(t, d.Sweep(t.Context()))
		}
		if v, s := account.Volumes(), account.Snapshots(); len(v) != volumes || len(s) != snapshots {
			t.Errorf("the account holds %+v and %+v, want %d volumes and %d snapshots", v, s, volumes, snapshots)
		}
	}
}

func onDroplet(droplet int) func(*testing.T, *emulator.Cloud, cloud.Cloud, cloud.VolumeID) {
	return func(t *testing.T, account *emulator.Cloud, _ cloud.Cloud, id cloud.VolumeID) {
		t.Helper()
		at(t, account, id, droplet)
	}
}

func steps() map[string]step {
	create := func(edit func(*cloud.CreateVolumeRequest, cloud.VolumeID)) func(context.Context, cloud.Cloud, cloud.VolumeID) error {
		return func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			req := request("made")
			edit(&req, id)
			vol, err := c.CreateVolume(ctx, req)
			if err == nil && (vol.Size < req.Size || vol.Source != req.Source) {
				return fmt.Errorf("it answers %+v for %+v", vol, req)
			}
			return err
		}
	}
	return map[string]step{
		"create":                    {origin, create(func(*cloud.CreateVolumeRequest, cloud.VolumeID) {}), left(2, 0)},
		"create in a second region": {origin, create(func(r *cloud.CreateVolumeRequest, _ cloud.VolumeID) { r.Zones = []string{"nyc2", "ams3"} }), left(2, 0)},
		"clone to a larger size": {origin, create(func(r *cloud.CreateVolumeRequest, id cloud.VolumeID) {
			r.Source.Volume, r.Size = id, 2*cloud.GiB
		}), left(2, 0)},
		"attach": {origin, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.Attach(ctx, id, node1)
			return err
		}, onDroplet(droplet1)},
		"detach": {attached, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.Detach(ctx, id, node1)
		}, onDroplet(0)},
		"detach from wherever it is": {attached, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.Detach(ctx, id, "")
		}, onDroplet(0)},
		"expand while attached": {attached, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			exp, err := c.ExpandVolume(ctx, id, 2*cloud.GiB)
			if err == nil && exp.Size != 2*cloud.GiB {
				return fmt.Errorf("it answers %+v", exp)
			}
			return err
		}, onDroplet(droplet1)},
		"snapshot": {origin, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			_, err := c.CreateSnapshots(ctx, cloud.CreateSnapshotsRequest{Name: "s", Volumes: []cloud.VolumeID{id}})
			return err
		}, left(1, 1)},
		"delete": {origin, func(ctx context.Context, c cloud.Cloud, id cloud.VolumeID) error {
			return c.DeleteVolume(ctx, id)
		}, left(0, 0)},
	}
}

// C1, C2, A10: a controller is killed at each of its requests in turn, before and after the request's effect; a
// new one that is asked the same converges, and nothing is left or doubled.
func TestAControllerKilledAtAnyRequestIsContinuedByTheNext(t *testing.T) {
	for name, s := range steps() {
		t.Run(name, func(t *testing.T) {
			cuts := 0
			for _, after := range []bool{false, true} {
				for n := 1; ; n++ {
					account := start(t, emulator.Options{Durations: emulator.Actions(clock.Fixed(2 * time.Millisecond))})
					id := s.before(t, open(t, account))
					ctx, kill := context.WithCancel(t.Context())
					transport := &cut{base: account.Client().Transport, at: n, after: after, kill: kill}
					dying := open(t, account, func(cfg *digitalocean.Config) { cfg.Transport = transport })
					err := s.call(ctx, stack(dying), id)
					if !transport.reached() {
						must(t, err)
						kill()
						break
					}
					cuts++
					kill()
					next := open(t, account, func(cfg *digitalocean.Config) { cfg.LeftOverAge = time.Nanosecond })
					repeat(t, func() error { return s.call(t.Context(), stack(next), id) })
					s.after(t, account, next, id)
				}
			}
			if cuts < 2 {
				t.Errorf("the controller was killed %d times only", cuts)
			}
		})
	}
}

// repeat calls as a sidecar does.
func repeat(t *testing.T, call func() error) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := call()
		if err == nil {
			return
		}
		switch fault.Of(err) {
		case fault.Unavailable, fault.Uncertain, fault.Busy, fault.Precondition:
		default:
			t.Fatalf("the repeat = %v", err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the repeats do not converge: %v", err)
		}
	}
}

// Two controllers on one account are asked the same at once: locks and queues of one process carry no
// correctness.
func TestTwoControllersAtOnceConverge(t *testing.T) {
	for name, s := range steps() {
		t.Run(name, func(t *testing.T) {
			account := start(t, emulator.Options{Durations: emulator.Actions(clock.Span{Least: time.Millisecond, Spread: 5 * time.Millisecond})})
			id := s.before(t, open(t, account))
			young := func(cfg *digitalocean.Config) { cfg.LeftOverAge = time.Nanosecond }
			controllers := []*digitalocean.Cloud{open(t, account, young), open(t, account, young)}
			var all sync.WaitGroup
			for _, c := range controllers {
				all.Go(func() { repeat(t, func() error { return s.call(t.Context(), stack(c), id) }) })
			}
			all.Wait()
			s.after(t, account, controllers[0], id)
		})
	}
}
