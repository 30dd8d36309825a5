package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/sim"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/world"
)

// forgetful makes a new volume for every repeat of a request: lost idempotency.
type forgetful struct {
	cloud.Cloud

	mu    sync.Mutex
	calls int
}

func (f *forgetful) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	f.mu.Lock()
	f.calls++
	req.Name = fmt.Sprintf("%s.%d", req.Name, f.calls)
	f.mu.Unlock()
	return f.Cloud.CreateVolume(ctx, req)
}

// eager makes room for a volume by deleting what has its name, whoever made that: blind delete.
type eager struct{ cloud.Cloud }

func (e eager) CreateVolume(ctx context.Context, req cloud.CreateVolumeRequest) (cloud.Volume, error) {
	vol, err := e.Cloud.CreateVolume(ctx, req)
	if !errors.Is(err, fault.Conflict) {
		return vol, err
	}
	for at := (cloud.Page{}); ; {
		list, listErr := e.ListVolumes(ctx, at)
		if listErr != nil {
			return vol, err
		}
		for _, v := range list.Volumes {
			if v.Name == req.Name && e.DeleteVolume(ctx, v.ID) == nil {
				return e.Cloud.CreateVolume(ctx, req)
			}
		}
		if at.Token = list.Next; at.Token == "" {
			return vol, err
		}
	}
}

// hasty says that a volume is free when the detach was sent: early success of detach.
type hasty struct{ cloud.Cloud }

func (h hasty) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if err := h.Cloud.Detach(short, id, node); ctx.Err() != nil || fault.Of(err) == fault.Unavailable {
		return err
	}
	return nil
}

// mindful believes what it remembers of where a volume is: cached attachment state.
type mindful struct {
	cloud.Cloud

	mu sync.Mutex
	on map[cloud.VolumeID]cloud.NodeID
}

func (m *mindful) remembered(id cloud.VolumeID, node cloud.NodeID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on[id] == node
}

func (m *mindful) remember(id cloud.VolumeID, node cloud.NodeID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on[id] = node
}

func (m *mindful) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	device, err := m.Cloud.Attach(ctx, id, node)
	if err == nil {
		m.remember(id, node)
	}
	return device, err
}

func (m *mindful) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	if !m.remembered(id, node) {
		return nil // it knows better than to ask
	}
	err := m.Cloud.Detach(ctx, id, node)
	if err == nil {
		m.remember(id, "")
	}
	return err
}

// deaf does not see an attach that is under way when it looks whether a volume is free: a late attach lands
// after an unpublish said free.
type deaf struct{ cloud.Cloud }

func (d deaf) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	vol, err := d.GetVolume(ctx, id)
	if err == nil && !slices.Contains(vol.AttachedTo, node) {
		return nil
	}
	return d.Cloud.Detach(ctx, id, node)
}

// impatient says that a volume is attached when its record names the machine: Linode's driver answers before
// the device is there.
type impatient struct{ cloud.Cloud }

func (i impatient) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	device, err := i.Cloud.Attach(short, id, node)
	if err == nil || ctx.Err() != nil {
		return device, err
	}
	vol, lookErr := i.GetVolume(ctx, id)
	if lookErr != nil || !slices.Contains(vol.AttachedTo, node) {
		return device, err
	}
	return vol.Device, nil
}

// trusting takes "it is attached" for "it is attached here" (failure A2 of the catalogue).
type trusting struct{ cloud.Cloud }

func (tr trusting) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	device, err := tr.Cloud.Attach(ctx, id, node)
	if fault.Of(err) != fault.Precondition {
		return device, err
	}
	vol, err := tr.GetVolume(ctx, id)
	return vol.Device, err
}

// credulous takes a volume off whatever machine it is on when a list shows it on the right one, which may be what
// was true a while ago.
type credulous struct{ cloud.Cloud }

func (cr credulous) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	if list, err := cr.ListVolumes(ctx, cloud.Page{}); err == nil {
		for _, v := range list.Volumes {
			if v.ID == id && slices.Contains(v.AttachedTo, node) {
				node = ""
			}
		}
	}
	return cr.Cloud.Detach(ctx, id, node)
}

// halfMade begins the name of a volume that is a copy which was never handed out.
const halfMade = "clone"

// sweeping removes what looks half-made in a list.
type sweeping struct{ cloud.Cloud }

func (sw sweeping) Sweep(ctx context.Context) error {
	list, err := sw.ListVolumes(ctx, cloud.Page{})
	for _, v := range list.Volumes {
		if strings.HasPrefix(v.Name, halfMade) {
			err = errors.Join(err, sw.DeleteVolume(ctx, v.ID))
		}
	}
	return err
}

// A1, A2: the tester must be able to fail: each of these backends is wrong in one way that other drivers were.
func TestPlantedBugsAreCaught(t *testing.T) {
	bugs := map[string]struct {
		plant func(cloud.Cloud) cloud.Cloud
		want  []sim.Breach
		// from is the seed of the first run: those before it show the bug never, or not each time.
		from, runs uint64
		// on are the clouds where it shows; nil: all.
		on func(world.Scene) bool
		// needs is a step without which it cannot show; empty: none.
		needs plan.Action
	}{
		"a repeat of a create makes a second volume": {
			func(c cloud.Cloud) cloud.Cloud { return &forgetful{Cloud: c} }, []sim.Breach{sim.Leaked, sim.Doubled, sim.Unequal}, 1, 10, nil, "",
		},
		"a name that is taken is made free by deleting its volume": {
			func(c cloud.Cloud) cloud.Cloud { return eager{c} }, []sim.Breach{sim.Trespassed, sim.Unequal, sim.Corrupt}, 1, 30, nil, "",
		},
		"a detach is taken for done when it was sent": {
			func(c cloud.Cloud) cloud.Cloud { return hasty{c} }, []sim.Breach{sim.MultiAttached}, 1, 10, nil, "",
		},
		"what an attach left is remembered instead of read": {
			func(c cloud.Cloud) cloud.Cloud { return &mindful{Cloud: c, on: map[cloud.VolumeID]cloud.NodeID{}} }, []sim.Breach{sim.MultiAttached}, 1, 10, nil, "",
		},
		"a volume counts as free although its attach is under way": {
			func(c cloud.Cloud) cloud.Cloud { return deaf{c} }, []sim.Breach{sim.MultiAttached}, 8, 120,
			func(s world.Scene) bool { return !s.Claims }, "", // else an attach that is under way is seen
		},
		"an attach is taken for done when the cloud has taken it on": {
			func(c cloud.Cloud) cloud.Cloud { return impatient{c} }, []sim.Breach{sim.MultiAttached}, 1, 10,
			func(s world.Scene) bool { return s.Claims }, "", // else the volume does not show it yet
		},
		"a detach believes a list": {
			func(c cloud.Cloud) cloud.Cloud { return credulous{c} }, []sim.Breach{sim.Corrupt, sim.MultiAttached}, 4, 240, // one in twenty shows it
			nil, "",
		},
		"a sweep believes a list": {
			func(c cloud.Cloud) cloud.Cloud { return sweeping{c} }, []sim.Breach{sim.Corrupt}, 620, 400, // a copy that is old is not gone on with, so it has to be quick
			func(s world.Scene) bool { return s.Claims }, plan.Away, // the one whose half-made copies are volumes
		},
		"an attachment elsewhere is taken for one here": {
			func(c cloud.Cloud) cloud.Cloud { return trusting{c} }, []sim.Breach{sim.MultiAttached}, 1, 60, nil, "",
		},
	}
	for cloudName, played := range world.Scenes {
		for name, bug := range bugs {
			if bug.on != nil && !bug.on(played) {
				continue
			}
			t.Run(cloudName+": "+name, func(t *testing.T) {
				t.Parallel()
				for seed := bug.from; seed < bug.from+bug.runs; seed++ {
					p := plan.New(seed, 1, played.Snapshots, 1)
					if bug.needs != "" && !slices.ContainsFunc(p.Steps, func(s plan.Step) bool { return s.Do == bug.needs }) {
						continue
					}
					out := sim.Execute(t, p, sim.Setup{Scene: played, Plant: bug.plant})
					if len(out.Wrongs) == 0 {
						continue
					}
					if !slices.Contains(bug.want, out.Wrongs[0].Breach) {
						t.Errorf("seed %d: %v, want one of %v", seed, out.Wrongs[0], bug.want)
					}
					t.Logf("caught with seed %d: %s", seed, out.Wrongs[0].Breach)
					return
				}
				t.Errorf("not caught within %d runs", bug.runs)
			})
		}
	}
}

// Linode deletes attached volumes, so that the backend's own read is all that keeps it from losing data.
func TestADeleteWithoutItsReadIsCaught(t *testing.T) {
	t.Parallel()
	const first, last = 35, 400 // no seed before the first shows it
	played := world.Scenes["linode"]
	for seed := range uint64(last - first + 1) {
		p := plan.New(first+seed, 2, played.Snapshots, 1)
		out := sim.Execute(t, p, sim.Setup{Scene: played, Unread: true})
		if len(out.Wrongs) == 0 {
			continue
		}
		if got := out.Wrongs[0]; got.Breach != sim.Corrupt {
			t.Errorf("seed %d: %v, want %s", p.Seed, got, sim.Corrupt)
		}
		t.Logf("caught with seed %d: %s", p.Seed, out.Wrongs[0].Text)
		return
	}
	t.Errorf("not caught up to seed %d", last)
}

// A10: without a planted bug nothing is wrong, and no data race is found. make chaos runs more seeds, without the race
// detector.
func TestNothingIsWrong(t *testing.T) {
	for name, played := range world.Scenes {
		for seed := range uint64(4) {
			p := plan.New(seed+1, 1+int(seed%2), played.Snapshots, 1)
			if out := sim.Execute(t, p, sim.Setup{Scene: played}); len(out.Wrongs) > 0 {
				t.Errorf("%s, seed %d: %v", name, p.Seed, out.Wrongs)
			}
		}
	}
}
