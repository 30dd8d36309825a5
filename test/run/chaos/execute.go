package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// outcome is what a run came to.
type outcome struct {
	wrongs  []Wrong
	kinds   []Kind // those that the cloud has
	fired   []Fault
	rpcs    int
	crashes int
	history *history
}

// outcome is what the run came to, after its end. A request that the end has overtaken may still note a breach.
func (s *sim) outcome() outcome {
	o := outcome{kinds: s.world.Kinds(), fired: s.in.faults(), history: s.hist}
	s.mu.Lock()
	defer s.mu.Unlock()
	o.wrongs, o.rpcs, o.crashes = slices.Clone(s.wrongs), s.rpcs, s.crashes
	return o
}

// setup says on what a plan is played.
type setup struct {
	scene
	// plant makes backends wrong on purpose; nil: not. The first breach then ends the run.
	plant func(cloud.Cloud) cloud.Cloud
	// unread gives the backend of an emulated Linode account the fault unreadDelete, with the same effect on the run.
	unread bool
}

// execute plays a plan in simulated time.
func execute(t *testing.T, p Plan, with setup) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		in, hist := newInjector(p.Seed, p.Faults), newHistory()
		s := newSim(p, in, hist)
		s.first = with.plant != nil || with.unread
		w, err := with.open(in, func(format string, args ...any) { hist.add("cloud", format, args...) }, s.check)
		if err != nil {
			t.Fatal(err)
		}
		w.unread = with.unread
		s.world = w
		s.fleet = &memoryFleet{world: w, plant: with.plant, died: func() { s.set(func() {}) }, lives: map[int]*life{}}
		if err := s.begin(); err != nil {
			t.Fatal(err)
		}
		s.play()
		o = s.outcome()
	})
	return o
}

// shrink leaves out steps and faults for as long as a plan still ends in the same kind of breach, and
// returns the smallest it found with its outcome. It plays at most so many plans.
func shrink(t *testing.T, p Plan, first outcome, with setup, most int) (Plan, outcome) {
	want := first.wrongs[0].Breach
	best, result := p.without(none, none), first
	best.Faults = first.fired
	played := 0
	try := func(smaller Plan) bool {
		if played++; played > most {
			return false
		}
		o := execute(t, smaller, with)
		for _, w := range o.wrongs {
			if w.Breach == want {
				best, result = smaller, o
				return true
			}
		}
		return false
	}
	for chunk := max(len(best.Steps), len(best.Faults)); chunk > 0 && played < most; {
		shrunk := false
		for at := 0; at < max(len(best.Steps), len(best.Faults)); at += chunk {
			drop := func(i int) bool { return i >= at && i < at+chunk }
			if at < len(best.Faults) && try(best.without(none, drop)) || at < len(best.Steps) && try(best.without(drop, none)) {
				shrunk = true
				at -= chunk // what came after is here now
			}
		}
		if !shrunk || chunk > 1 {
			chunk /= 2
		}
	}
	return best, result
}

func none(int) bool { return false }

// scene is a cloud to play on.
type scene struct {
	// open makes its world; served makes one that real programs reach.
	open, served maker
	// snapshots: the cloud has them.
	snapshots bool
	// claims: an attach shows in the volume's record as soon as the cloud has taken it on, so that nobody
	// takes the volume for free.
	claims bool
}

// scenes are the clouds by their names.
var scenes = map[string]scene{
	"digitalocean":     emulated(digitalOceanTraits, scene{snapshots: true}),
	"linode":           emulated(linodeTraits, scene{claims: true}),
	"linode-snapshots": emulated(linodeSnapshotTraits, scene{claims: true, snapshots: true}),
	"yandex":           emulated(yandexTraits, scene{snapshots: true}),
}

// emulated completes a scene by both worlds of an emulated account.
func emulated(t traits, s scene) scene {
	s.open, s.served = rest(t, 0), rest(t, binarySpeed)
	return s
}

func sceneOf(name string) (scene, error) {
	if s, ok := scenes[name]; ok {
		return s, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(scenes)), ", ")
	if name == "local" {
		return scene{}, fmt.Errorf("cloud %q is not played: its volumes are files of this machine, so there is no API that could fail; known are %s", name, known)
	}
	return scene{}, fmt.Errorf("cloud %q: known are %s", name, known)
}
