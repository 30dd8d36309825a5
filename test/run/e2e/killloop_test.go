//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// lifeStep is one step of a whole life; its run may be called again.
type lifeStep struct {
	name string
	run  func(ctx context.Context) error
}

// life is a volume with everything that comes of it: a snapshot, a clone, a restored volume.
type life struct {
	t     *testing.T
	pair  *programs.Pair
	where place
	kind  string
	n     string // makes the names of this life its own

	source, clone, restored *programs.Volume
	snap                    *programs.Snapshot
}

const lifeBytes = 8 * mib

func (l *life) create(into **programs.Volume, claim func() programs.Claim) func(context.Context) error {
	return func(ctx context.Context) error {
		v, err := l.pair.Create(ctx, claim())
		if err != nil {
			return err
		}
		if *into != nil && (*into).ID != v.ID {
			l.t.Errorf("the same request made %s and %s", (*into).ID, v.ID)
		}
		*into = v
		return nil
	}
}

// steps are all calls of a life in their order, with what a pod does in between. It syncs what it writes: a snapshot of a volume in use
// holds what is on the disk.
func (l *life) steps() []lifeStep {
	claim := func(name string, size int64) programs.Claim {
		return programs.Claim{Name: name + l.n, Filesystem: l.kind, Size: size}
	}
	call := func(name string, on **programs.Volume, f func(*programs.Volume, context.Context) error) lifeStep {
		return lifeStep{name, func(ctx context.Context) error { return f(*on, ctx) }}
	}
	attach, detach := (*programs.Volume).Attach, (*programs.Volume).Detach
	steps := []lifeStep{
		{"create", l.create(&l.source, func() programs.Claim { return claim("source", l.where.size) })},
		call("attach", &l.source, attach),
		call("stage", &l.source, (*programs.Volume).Stage),
		call("publish", &l.source, (*programs.Volume).Publish),
		{"write", func(context.Context) error { return fill(data(l.source), 1, lifeBytes) }},
		{"expand", l.expand},
		{"snapshot", l.snapshot},
		{"write again", func(context.Context) error { return fill(data(l.source), 2, lifeBytes) }},
		{"clone", l.create(&l.clone, func() programs.Claim {
			c := claim("clone", l.where.larger)
			c.Source = l.source.Source()
			return c
		})},
		{"write once more", func(context.Context) error { return fill(data(l.source), 3, lifeBytes) }},
		{"restore", l.create(&l.restored, func() programs.Claim {
			c := claim("restored", l.where.larger)
			c.Source = l.snap.Source()
			return c
		})},
		{"read", func(context.Context) error { return holds(data(l.source), 3, lifeBytes) }},
		call("unpublish", &l.source, (*programs.Volume).Unpublish),
		call("unstage", &l.source, (*programs.Volume).Unstage),
		call("detach", &l.source, detach),
	}
	if !l.where.growsInUse {
		steps = append(steps,
			call("attach what has grown", &l.source, attach),
			call("stage what has grown", &l.source, (*programs.Volume).Stage),
			lifeStep{"see that it has grown", l.seesGrowth},
			call("unstage what has grown", &l.source, (*programs.Volume).Unstage),
			call("detach what has grown", &l.source, detach),
		)
	}
	for i, v := range []**programs.Volume{&l.restored, &l.clone} {
		seed, what := byte(i+1), []string{" the restored volume", " the clone"}[i]
		steps = append(steps,
			call("attach"+what, v, attach),
			call("stage"+what, v, (*programs.Volume).Stage),
			call("publish"+what, v, (*programs.Volume).Publish),
			lifeStep{"read" + what, func(context.Context) error { return holds(data(*v), seed, lifeBytes) }},
			call("unpublish"+what, v, (*programs.Volume).Unpublish),
			call("unstage"+what, v, (*programs.Volume).Unstage),
			call("detach"+what, v, detach),
			call("delete"+what, v, (*programs.Volume).Delete),
		)
	}
	steps = append(steps,
		call("delete", &l.source, (*programs.Volume).Delete),
		lifeStep{"delete the snapshot", func(ctx context.Context) error { return l.snap.Delete(ctx) }},
	)
	return slices.DeleteFunc(steps, l.cannot)
}

// cannot reports whether a step is nothing for the cloud.
func (l *life) cannot(s lifeStep) bool {
	attaches := strings.HasPrefix(s.name, "attach") || strings.HasPrefix(s.name, "detach")
	snapshots := strings.Contains(s.name, "snapshot") || strings.Contains(s.name, "restore")
	copies := snapshots || strings.Contains(s.name, "clone")
	return attaches && !l.pair.Attaches() || snapshots && !l.pair.Snapshots() || copies && l.where.noCopies
}

// seesGrowth checks that the filesystem fills the grown volume when it is staged.
func (l *life) seesGrowth(context.Context) error {
	if got := filesystemSize(l.t, l.source.Staging); seesGrowth(l.t, l.kind) && got < l.where.grown*85/100 {
		return fmt.Errorf("the filesystem has %d bytes when staged again, want nearly %d", got, l.where.grown)
	}
	return nil
}

// expand grows the volume where this machine lets it; otherwise it grows at the next stage.
func (l *life) expand(ctx context.Context) error {
	_, err := l.source.Expand(ctx, l.where.grown)
	if status.Code(err) == codes.FailedPrecondition && !l.where.grows(l.t, l.kind) {
		return nil
	}
	return err
}

func (l *life) snapshot(ctx context.Context) error {
	s, err := l.source.Snapshot(ctx, "snap"+l.n)
	if err != nil {
		return err
	}
	if l.snap != nil && l.snap.ID != s.ID {
		l.t.Errorf("the same request made snapshots %s and %s", l.snap.ID, s.ID)
	}
	l.snap = s
	return nil
}

// victim is a program to kill; both die when their container's node does.
type victim struct {
	name     string
	programs func(*programs.Pair) []*programs.Program
}

var victims = []victim{
	{"the controller", func(p *programs.Pair) []*programs.Program { return []*programs.Program{p.Controller} }},
	{"the node program", func(p *programs.Pair) []*programs.Program { return []*programs.Program{p.Node} }},
	{"both", func(p *programs.Pair) []*programs.Program { return []*programs.Program{p.Controller, p.Node} }},
}

func (v victim) kill(pair *programs.Pair) {
	for _, p := range v.programs(pair) {
		p.Kill()
	}
}

func (v victim) restart(t *testing.T, pair *programs.Pair) {
	t.Helper()
	for _, p := range v.programs(pair) {
		noError(t, p.Start(t.Context()))
	}
}

// killed is what a kill loop runs on.
type killed struct {
	where place
	kind  string
}

// lives are what the kill loops run on: a pool on ext4 has no copies. With -short one pool.
func lives() []killed {
	all := []killed{
		{onPool("xfs"), "xfs"}, {onPool("ext4"), "ext4"}, {onPool("xfs"), ""},
		{onYandex, "xfs"}, {onDigitalOcean, "xfs"}, {onLinode, "xfs"},
	}
	if testing.Short() {
		return all[:1]
	}
	return all
}

// C8: the test kills either program between any two steps of a life. The next step then works at once: nothing is
// leaked, nothing is doubled, the data is whole.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	t.Parallel()
	for _, tc := range lives() {
		t.Run(tc.where.name+", volume "+kindName(tc.kind), func(t *testing.T) {
			t.Parallel()
			w := tc.where.start(t)
			gaps := len((&life{pair: w.Pair, where: tc.where}).steps()) - 1
			died := map[string]bool{}
			for first := range (gaps + 1) / 2 {
				// Four deaths a quarter of a life apart, so that after half as many lives as there are gaps
				// each of the two has died in each gap.
				deaths := map[int]victim{}
				for quarter := range 4 {
					deaths[(first+(quarter*gaps+3)/4)%gaps] = victims[quarter%2]
				}
				l := &life{t: t, pair: w.Pair, where: tc.where, kind: tc.kind, n: fmt.Sprint("-", first)}
				last := "nobody killed"
				for i, step := range l.steps() {
					if err := step.run(t.Context()); err != nil {
						t.Fatalf("%s: %s = %v", last, step.name, err)
					}
					if who, dies := deaths[i]; dies {
						last = who.name + " killed after " + step.name
						died[last] = true
						who.kill(w.Pair)
						who.restart(t, w.Pair)
					}
				}
				w.wantNothingLeft(t)
			}
			if len(died) != 2*gaps {
				t.Errorf("%d deaths in %d gaps, want each of two programs in each: %v", len(died), gaps, slices.Sorted(maps.Keys(died)))
			}
		})
	}
}

// C1: the test kills either program, and both, while it works on a step, at a random moment of it. The same step again
// comes to its end.
func TestKilledWithinAnyStep(t *testing.T) {
	t.Parallel()
	for _, tc := range lives() {
		t.Run(tc.where.name+", volume "+kindName(tc.kind), func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			w := tc.where.start(t)
			usual := map[string]time.Duration{}
			for round := range 3 {
				for i, who := range victims {
					l := &life{t: t, pair: w.Pair, where: tc.where, kind: tc.kind, n: fmt.Sprintf("-%d-%d", round, i)}
					for _, step := range l.steps() {
						if round == 0 { // to learn how long a step takes
							begin := time.Now()
							if err := step.run(t.Context()); err != nil {
								t.Fatalf("%s = %v", step.name, err)
							}
							usual[step.name] = time.Since(begin)
							continue
						}
						moment := time.Duration(random.Float64() * float64(usual[step.name]) * 1.1)
						l.cut(step, who, moment)
					}
					w.wantNothingLeft(t)
				}
			}
		})
	}
}

// startsOver takes the way out of a first format that was cut off: the volume, which was never mounted, is deleted and made again.
func (l *life) startsOver() {
	l.t.Helper()
	out := []func(context.Context) error{l.source.Unstage}
	if l.pair.Attaches() {
		out = append(out, l.source.Detach)
	}
	must(l.t, append(out, l.source.Delete)...)
	l.source = nil
	for _, step := range l.steps() {
		if err := step.run(l.t.Context()); err != nil {
			l.t.Fatalf("%s after a format that was cut off = %v", step.name, err)
		}
		if step.name == "stage" {
			return
		}
	}
}

// cut runs a step, kills at that moment of it, and repeats the step until it succeeds.
func (l *life) cut(step lifeStep, who victim, moment time.Duration) {
	l.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- step.run(l.t.Context()) }()
	<-time.After(moment)
	who.kill(l.pair)
	<-ended
	who.restart(l.t, l.pair)
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := step.run(ctx)
		if err == nil {
			return
		}
		if step.name == "stage" && strings.Contains(err.Error(), "CB-FORMAT-UNFINISHED") {
			l.startsOver()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			l.t.Fatalf("%s killed %s after the begin of %q: it does not come to its end: %v", who.name, moment, step.name, err)
		}
	}
}
