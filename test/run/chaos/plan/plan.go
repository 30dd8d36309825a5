package plan

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/chaos/trouble"
)

// Plan is all that a run does. The same plan makes the same run.
type Plan struct {
	Seed        uint64
	Controllers int
	// Snapshots: the cloud has them.
	Snapshots bool
	Steps     []Step
	// Faults are those that happen; nil: they are drawn from the seed.
	Faults []trouble.Fault
}

// What every run has.
const (
	// Machines is how many machines the cluster has.
	Machines = 2
	// firstVolumes are made at the beginning of every act, without a source.
	firstVolumes = 3
	// Clash is the number of a claim whose name another cluster's volume has.
	Clash = 9
	// middle is how many actions come between the beginning and the end of an act.
	middle = 30
	// LeftOver is from which age a driver may take a half-made copy to be forgotten. It is longer than a call.
	LeftOver = 10 * time.Minute
)

// New draws a plan of one or more acts, with snapshots where the cloud has them.
func New(seed uint64, controllers int, snapshots bool, acts int) Plan {
	b := &planner{rng: rand.New(rand.NewPCG(seed, 0)), controllers: controllers, pictures: snapshots}
	for range acts {
		b.act()
	}
	if !slices.ContainsFunc(b.steps, func(s Step) bool { return s.Do == Crash }) {
		b.crash()
	}
	b.lateness(seed)
	b.add(Step{Do: Reconcile}, 10*time.Second)
	b.add(Step{Do: Look}, 10*time.Second)
	return Plan{Seed: seed, Controllers: controllers, Snapshots: snapshots, Steps: b.steps}
}

// planner draws steps one after the other.
type planner struct {
	rng         *rand.Rand
	controllers int
	now         time.Duration
	steps       []Step
	volumes     int
	snapshots   int
	pictures    bool // the cloud has snapshots
	clashed     bool
	adopted     bool
}

// act makes volumes, runs pods with them, and draws what happens to them and to all earlier ones.
func (b *planner) act() {
	var made []int
	for range firstVolumes {
		made = append(made, b.volumes)
		b.add(Step{Do: CreateClaim, Volume: b.number(), Size: 1 + b.rng.IntN(3)}, 4*time.Second)
	}
	for _, v := range made {
		b.add(Step{Do: RunPod, Volume: v, Node: b.rng.IntN(Machines)}, 6*time.Second)
	}
	for range middle {
		b.draw()
	}
}

// number returns the number of a new claim.
func (b *planner) number() int {
	number := b.volumes
	b.volumes++
	if b.volumes == Clash {
		b.volumes++
	}
	return number
}

func (b *planner) add(s Step, within time.Duration) {
	b.now += time.Duration(b.rng.Int64N(int64(within)))
	s.At = b.now
	b.steps = append(b.steps, s)
}

func (b *planner) crash() {
	point := trouble.BeforeEffect
	if b.rng.IntN(3) > 0 {
		point = trouble.AfterEffect
	}
	b.add(Step{Do: Crash, Controller: b.rng.IntN(b.controllers), Point: point}, 10*time.Second)
}

func (b *planner) draw() {
	const within = 25 * time.Second
	vol := b.rng.IntN(b.volumes)
	switch n := b.rng.IntN(100); {
	case n < 17:
		b.add(Step{Do: RunPod, Volume: vol, Node: b.rng.IntN(Machines)}, within)
	case n < 26:
		b.waver(vol, within)
	case n < 31:
		b.add(Step{Do: StopPod, Volume: vol}, within)
	case n < 34:
		b.meddle(vol, within)
	case n < 42:
		b.add(Step{Do: Grow, Volume: vol, Size: 1 + b.rng.IntN(2)}, within)
	case n < 52 && b.pictures:
		b.add(Step{Do: TakeSnapshot, Volume: vol, Snapshot: b.snapshots}, within)
		b.snapshots++
	case n < 55 && b.snapshots > 0:
		b.add(Step{Do: DropSnapshot, Snapshot: b.rng.IntN(b.snapshots)}, within)
	case n < 68:
		b.copy(within)
	case n < 72:
		b.add(Step{Do: DeleteClaim, Volume: vol}, within)
	case n < 75:
		b.add(Step{Do: Reconcile}, within)
	case n < 78:
		again := Step{Do: AskAgain, Volume: vol, Snapshot: -1}
		if b.snapshots > 0 && b.rng.IntN(2) > 0 {
			again.Snapshot = b.rng.IntN(b.snapshots)
		}
		b.add(again, within)
	case n < 83:
		b.add(Step{Do: Look, Volume: vol}, within)
	case n < 90:
		b.crash()
	case n < 94 && b.controllers > 1:
		b.add(Step{Do: Lead, Sidecar: Sidecars[b.rng.IntN(len(Sidecars))], Controller: b.rng.IntN(b.controllers)}, within)
	case n < 97:
		b.add(Step{Do: RestartSidecar, Sidecar: Sidecars[b.rng.IntN(len(Sidecars))]}, within)
	default:
		b.foreign(within)
	}
}

// waver runs a pod and changes its mind while the volume is still being attached.
func (b *planner) waver(vol int, within time.Duration) {
	node := b.rng.IntN(Machines)
	b.add(Step{Do: RunPod, Volume: vol, Node: node}, within)
	if b.rng.IntN(2) > 0 {
		b.add(Step{Do: RestartSidecar, Sidecar: Attacher}, 4*time.Second)
	}
	if b.rng.IntN(2) > 0 {
		b.add(Step{Do: StopPod, Volume: vol}, 2*time.Second)
	} else {
		b.add(Step{Do: RunPod, Volume: vol, Node: (node + 1) % Machines}, 2*time.Second)
	}
}

// meddle is somebody with access to the cloud's console, who takes a free volume for a machine.
func (b *planner) meddle(vol int, within time.Duration) {
	node := b.rng.IntN(Machines)
	b.add(Step{Do: StopPod, Volume: vol}, within)
	b.add(Step{Do: Meddle, Volume: vol, Node: node}, 2*within)
	b.add(Step{Do: RunPod, Volume: vol, Node: b.rng.IntN(Machines)}, within/2)
}

// copy makes a claim from a snapshot or from another claim, larger than its source as often as not.
func (b *planner) copy(within time.Duration) {
	from := Origin{Kind: FromVolume, Number: b.rng.IntN(b.volumes)}
	if b.snapshots > 0 && b.rng.IntN(2) > 0 {
		from = Origin{Kind: FromSnapshot, Number: b.rng.IntN(b.snapshots)}
	}
	b.add(Step{Do: CreateClaim, Volume: b.number(), Size: b.rng.IntN(3), From: from}, within)
}

// lateness puts in what comes late, by chances of its own: everything else stays as it was drawn.
func (b *planner) lateness(seed uint64) {
	own := &planner{rng: rand.New(rand.NewPCG(seed, 1)), volumes: b.volumes, now: b.now}
	for range 2 {
		late := Step{Do: LateDetach, At: time.Duration(own.rng.Int64N(int64(b.now)))}
		at := slices.IndexFunc(b.steps, func(s Step) bool { return s.At > late.At })
		b.steps = slices.Insert(b.steps, at, late)
	}
	if own.rng.IntN(3) > 0 {
		return
	}
	for range 2 {
		own.copy(4 * time.Second)
	}
	own.add(Step{Do: Away}, 5*time.Second)
	b.steps = append(b.steps, own.steps...)
	b.now = own.now + LeftOver + 4*time.Minute
}

// foreign does what touches another cluster's volumes.
func (b *planner) foreign(within time.Duration) {
	switch {
	case !b.clashed:
		b.clashed = true
		b.add(Step{Do: CreateClaim, Volume: Clash, Size: 1}, within)
		b.add(Step{Do: DeleteClaim, Volume: Clash}, 2*within)
	case !b.adopted:
		b.adopted = true
		b.add(Step{Do: Adopt}, within)
	}
}

// Without returns the plan without the steps and the faults for whose indices these answer true. The faults that are left are all that happen.
func (p Plan) Without(steps func(i int) bool, faults func(i int) bool) Plan {
	less := Plan{Seed: p.Seed, Controllers: p.Controllers, Snapshots: p.Snapshots, Faults: []trouble.Fault{}}
	for i, step := range p.Steps {
		if !steps(i) {
			less.Steps = append(less.Steps, step)
		}
	}
	for i, fault := range p.Faults {
		if !faults(i) {
			less.Faults = append(less.Faults, fault)
		}
	}
	return less
}
