// Package sim plays a plan: a small cluster with its users, its stock sidecars and kubelets, who call the controllers, and
// a model that says what must hold at all times and what must be left at the end.
package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/plan"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/world"
)

// sim is one run: the cluster's objects, those who work on them, and what is known of them.
type sim struct {
	plan  plan.Plan
	world *world.World
	// speed is how much faster than real the cluster's time passes: 1 where time is simulated.
	speed float64
	fleet fleet
	in    *trouble.Injector
	hist  *History

	// life ends when the run is over, be it that not everything came to rest.
	life    context.Context
	end     context.CancelFunc
	workers sync.WaitGroup

	mu    sync.Mutex
	moved *sync.Cond // signalled at every change of what mu guards

	claims    map[int]*claim
	snapshots map[int]*snap
	lead      map[plan.Sidecar]int
	calls     []*rpc
	rpcs      int
	crashes   int
	wrongs    []Wrong
	first     bool // the first breach ends the run
	ending    bool // everything is being deleted
	absent    bool // the provisioner is
	// foreign and images are another cluster's.
	foreign map[cloud.VolumeID]bool
	images  map[cloud.SnapshotID]bool
}

// The times of a run. They are simulated.
const (
	// calm is how long the faults go on while everything is deleted already.
	calm = 3 * time.Minute
	// patience is how long everything may take to come to rest without faults.
	patience = 3 * time.Hour
	// rounds is how often an operator looks at what does not come to an end.
	rounds = 10 * time.Minute
	// glance is how often the state is looked at when nothing seems to happen.
	glance = 2 * time.Second
	// idle is how often when nobody has anything to do any more.
	idle = 5 * time.Minute
)

// fleet is the controllers of a run. Each is started again after it was killed.
type fleet interface {
	// Start begins a life of a controller.
	Start(number int) error
	// Kill ends it at once, in the middle of whatever it does.
	Kill(number int)
	// Client calls the controller; while it is down the calls fail.
	Client(number int) csi.ControllerClient
	// Sweep lets the controller remove what broken-off calls have left, which it does now and then.
	Sweep(ctx context.Context, number int) error
	// Close ends all.
	Close()
}

func newSim(p plan.Plan, in *trouble.Injector, hist *History) *sim {
	s := &sim{
		plan: p, in: in, hist: hist, speed: 1,
		claims: map[int]*claim{}, snapshots: map[int]*snap{}, lead: map[plan.Sidecar]int{},
		foreign: map[cloud.VolumeID]bool{}, images: map[cloud.SnapshotID]bool{},
	}
	s.moved = sync.NewCond(&s.mu)
	s.life, s.end = context.WithCancel(context.Background())
	context.AfterFunc(s.life, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.moved.Broadcast()
	})
	for i, sc := range plan.Sidecars {
		s.lead[sc] = i % p.Controllers
	}
	return s
}

// quick is a duration of the cluster's by the clock of this machine.
func (s *sim) quick(d time.Duration) time.Duration { return time.Duration(float64(d) / s.speed) }

// until waits for a condition; false when the run is over. The condition is called with mu held.
func (s *sim) until(condition func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !condition() {
		if s.life.Err() != nil {
			return false
		}
		s.moved.Wait()
	}
	return s.life.Err() == nil
}

// set changes something under mu.
func (s *sim) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.moved.Broadcast()
}

// get reads something under mu.
func get[T any](s *sim, read func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return read()
}

// actor is somebody who works on the cluster, with randomness of its own.
type actor struct {
	s    *sim
	name string
	rng  *rand.Rand
}

// actor starts somebody, who begins at a moment of its own.
func (s *sim) actor(name string, work func(a *actor)) {
	a := &actor{s: s, name: name, rng: trouble.Random(s.plan.Seed, name)}
	s.workers.Go(func() {
		if a.think() {
			work(a)
		}
	})
}

// pause lets time pass; false when the run is over. No two actors go on at the same moment.
func (a *actor) pause(least, most time.Duration) bool {
	return wait.Sleep(a.s.life, a.s.quick(trouble.Between(a.rng, least, most))) == nil
}

// think is the little time that everybody needs.
func (a *actor) think() bool { return a.pause(time.Millisecond, 60*time.Millisecond) }

// backoff is the pause of a sidecar's work queue after so many failures.
func (a *actor) backoff(failures int, wake func() bool) {
	pause := time.Minute
	if failures < 6 {
		pause = time.Second << failures
	}
	ctx, cancel := context.WithTimeout(a.s.life, a.s.quick(trouble.Between(a.rng, pause/2, pause)))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { a.s.set(func() {}) })
	defer stop()
	a.s.until(func() bool { return ctx.Err() != nil || wake() })
	a.think()
}

// never does not end a pause early.
func never() bool { return false }

// begin starts the controllers and the eyes.
func (s *sim) begin() error {
	for c := range s.plan.Controllers {
		if err := s.fleet.Start(c); err != nil {
			return err
		}
		s.watch(c)
	}
	id, err := s.world.Foreign(claimName(plan.Clash), "snap-0")
	if err != nil {
		return fmt.Errorf("make another cluster's objects: %w", err)
	}
	s.set(func() {
		s.foreign[id] = true
		for img := range s.world.Truth().Snapshots {
			s.images[img] = true
		}
	})
	s.actor("operator", func(a *actor) {
		for a.pause(rounds, rounds+time.Minute) {
			for _, name := range s.world.Tend() {
				s.hist.add("operator", "removes %s by hand, as the driver says", name)
			}
		}
	})
	s.actor("eyes", func(a *actor) {
		for every := glance; a.pause(every, every+time.Millisecond); {
			s.check()
			if get(s, func() bool { return s.ending && s.rested() }) {
				every = idle
			}
		}
	})
	return nil
}

// play does all steps, deletes everything and waits until nothing is left to do.
func (s *sim) play() {
	defer s.close()
	began := time.Now()
	for _, step := range s.plan.Steps {
		if wait.Sleep(s.life, s.quick(step.At)-time.Since(began)) != nil {
			return
		}
		s.hist.add("step", "%s", step)
		s.step(step)
	}
	_ = wait.Sleep(s.life, s.quick(time.Second))
	s.hist.add("step", "delete everything")
	s.set(func() {
		s.ending = true
		for _, c := range s.claims {
			c.place, c.wanted = -1, false
		}
		for _, sn := range s.snapshots {
			sn.wanted = false
		}
	})
	_ = wait.Sleep(s.life, s.quick(calm))
	s.in.Stop()
	s.hist.add("step", "no more faults")
	resting, cancel := context.WithTimeout(s.life, s.quick(patience))
	defer cancel()
	stop := context.AfterFunc(resting, func() { s.set(func() {}) })
	defer stop()
	s.until(func() bool { return s.rested() || resting.Err() != nil })
	if wait.Sleep(s.life, s.quick(s.world.Settle())) != nil {
		return
	}
	s.set(func() {
		if !s.rested() {
			s.stuck()
		}
	})
	s.finalCheck()
}

// close ends what still goes on.
func (s *sim) close() {
	s.end()
	s.workers.Wait()
	s.fleet.Close()
	s.world.Close()
}

// rested says whether nobody has anything left to do. The caller holds mu.
func (s *sim) rested() bool {
	for _, c := range s.claims {
		if !c.gone {
			return false
		}
	}
	for _, sn := range s.snapshots {
		if !sn.gone {
			return false
		}
	}
	return true
}

// stuck says who has. The caller holds mu.
func (s *sim) stuck() {
	for _, n := range slices.Sorted(maps.Keys(s.claims)) {
		if c := s.claims[n]; !c.gone {
			s.wrong(Stuck, "%s cannot be deleted (pending %t, attachments %d)", c.name, c.pending, len(c.vas))
		}
	}
	for _, n := range slices.Sorted(maps.Keys(s.snapshots)) {
		if sn := s.snapshots[n]; !sn.gone {
			s.wrong(Stuck, "%s cannot be deleted (pending %t)", sn.name, sn.pending)
		}
	}
}
