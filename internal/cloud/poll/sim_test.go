package poll_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
)

// A sim is 100 volumes that are attached to 10 machines and detached again, so many at a time, in a
// cloud that does one thing at a time on each machine. Creating and deleting need no waiting, or, if
// all is set, are operations too, of which 15 run at a time.
type sim struct {
	all    bool
	atOnce int
	took   func() time.Duration
	lag    time.Duration // of each request
	usual  time.Duration // start value
}

// simCloud has the operations of a sim.
type simCloud struct {
	mu    sync.Mutex
	ends  map[int]time.Time
	reads int
	lag   time.Duration
}

func (c *simCloud) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (c *simCloud) begin(took time.Duration) (id int, began, ends time.Time) {
	c.pause(context.Background(), c.lag/2)
	c.mu.Lock()
	defer c.mu.Unlock()
	id, began = len(c.ends), time.Now()
	ends = began.Add(took)
	c.ends[id] = ends
	return id, began, ends
}

func (c *simCloud) many(ctx context.Context, ids []int) (map[int]bool, error) {
	c.pause(ctx, c.lag/2)
	c.mu.Lock()
	c.reads++
	states := map[int]bool{}
	for _, id := range ids {
		states[id] = !time.Now().Before(c.ends[id])
	}
	c.mu.Unlock()
	c.pause(ctx, c.lag/2)
	return states, ctx.Err()
}

func (c *simCloud) one(ctx context.Context, id int) (bool, error) {
	states, err := c.many(ctx, []int{id})
	return states[id], err
}

type simResult struct {
	reads    int
	ratios   []float64
	over     []time.Duration
	duration time.Duration
}

func (r simResult) at(q float64) (float64, time.Duration) {
	slices.Sort(r.ratios)
	slices.Sort(r.over)
	i := min(int(q*float64(len(r.ratios))), len(r.ratios)-1)
	return r.ratios[i], r.over[i]
}

type waitFunc func(ctx context.Context, op poll.Operation[int]) error

// round takes the volumes through their lives.
func (s sim) round(c *simCloud, wait waitFunc) simResult {
	const volumes, machines = 100, 10
	var mu sync.Mutex
	c.reads = 0
	res, began := simResult{}, time.Now()
	turns := make([]chan struct{}, machines)
	for i := range turns {
		turns[i] = make(chan struct{}, 1)
	}
	next := make(chan int, volumes)
	for v := range volumes {
		next <- v
	}
	close(next)
	slots := make(chan struct{}, volumes)
	if s.all {
		slots = make(chan struct{}, 15)
	}
	do := func(kind poll.Kind) {
		slots <- struct{}{}
		defer func() { <-slots }()
		id, start, end := c.begin(s.took())
		c.pause(context.Background(), c.lag/2)
		if err := wait(context.Background(), poll.Operation[int]{Key: id, Kind: kind, Began: time.Now()}); err != nil {
			panic(err)
		}
		mu.Lock()
		defer mu.Unlock()
		res.over = append(res.over, time.Since(end))
		res.ratios = append(res.ratios, float64(time.Since(start))/float64(end.Sub(start)))
	}
	onMachine := func(v int, kind poll.Kind) {
		turns[v%machines] <- struct{}{}
		defer func() { <-turns[v%machines] }()
		do(kind)
	}
	alone := func(kind poll.Kind) {
		if s.all {
			do(kind)
		} else {
			c.pause(context.Background(), c.lag)
		}
	}
	var group sync.WaitGroup
	for range s.atOnce {
		group.Go(func() {
			for v := range next {
				alone("create")
				onMachine(v, "attach")
				onMachine(v, "detach")
				alone("delete")
			}
		})
	}
	group.Wait()
	res.reads, res.duration = c.reads, time.Since(began)
	return res
}

func finished(done bool) (bool, error) { return done, nil }

// run returns the cold round and the warm one after it.
func (s sim) run() (cold, warm simResult) {
	c := &simCloud{ends: map[int]time.Time{}, lag: s.lag}
	p := poll.New(poll.Config[int, bool]{
		Source: poll.Source[int, bool]{One: c.one, Many: c.many},
		Usual: map[poll.Kind]time.Duration{
			"create": s.usual, "attach": s.usual, "detach": s.usual, "delete": s.usual,
		},
	})
	defer p.Close()
	wait := func(ctx context.Context, op poll.Operation[int]) error {
		_, err := p.Wait(ctx, op, finished)
		return err
	}
	return s.round(c, wait), s.round(c, wait)
}

// naive looks at its own operation every second.
func (s sim) naive() simResult {
	c := &simCloud{ends: map[int]time.Time{}, lag: s.lag}
	return s.round(c, func(ctx context.Context, op poll.Operation[int]) error {
		for {
			c.pause(ctx, time.Second)
			if done, _ := c.one(ctx, op.Key); done {
				return nil
			}
		}
	})
}

func exactly(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// around spreads evenly over a tenth to both sides.
func around(d time.Duration) func() time.Duration {
	return func() time.Duration { return d - d/10 + rand.N(d/5) }
}

// A bar is what a run must reach: requests, and times over an operation's own of which one of the
// share or the duration must hold.
type bar struct {
	reads    int
	p50, p99 float64
}

const enough = 300 * time.Millisecond

func (b bar) check(t *testing.T, run string, r simResult) string {
	p50, over50 := r.at(.5)
	p99, over99 := r.at(.99)
	if r.reads > b.reads {
		t.Errorf("%s: %d reads, want at most %d", run, r.reads, b.reads)
	}
	if p50 > b.p50 && over50 > enough {
		t.Errorf("%s: p50 is %.2f times the operation's own (+%s), want at most %.2f", run, p50, over50, b.p50)
	}
	if p99 > b.p99 && over99 > enough {
		t.Errorf("%s: p99 is %.2f times the operation's own (+%s), want at most %.2f", run, p99, over99, b.p99)
	}
	return fmt.Sprintf("%s %4d reads p50 %.2f (+%4d ms) p99 %.2f (+%4d ms)", run, r.reads, p50, over50.Milliseconds(), p99, over99.Milliseconds())
}

func TestReadsAndLatencyOfAHundredVolumes(t *testing.T) {
	none := bar{reads: 1 << 20, p50: 100, p99: 100}
	for _, op := range []time.Duration{150 * time.Millisecond, 2 * time.Second, 5 * time.Second} {
		for _, tc := range []struct {
			atOnce     int
			spread     bool
			all        bool
			cold, warm bar
		}{
			// One at a time nothing can be shared: a look for each operation, and some come too early.
			{1, false, false, bar{280, 1.1, 1.25}, bar{280, 1.1, 1.25}},
			{16, false, false, bar{150, 1.1, 1.25}, bar{150, 1.1, 1.25}},
			{100, false, false, bar{60, 1.1, 1.25}, bar{60, 1.1, 1.25}},
			// Operations that differ by a tenth to both sides keep the same median.
			{1, true, false, bar{310, 1.2, 1.5}, bar{290, 1.2, 1.5}},
			{16, true, false, bar{190, 1.2, 1.5}, bar{150, 1.2, 1.5}},
			// Four operations for each volume, 15 at a time.
			{16, false, true, bar{150, 1.1, 1.25}, bar{150, 1.1, 1.25}},
			{100, false, true, bar{75, 1.1, 1.25}, bar{60, 1.1, 1.25}},
			{100, true, false, bar{220, 1.2, 1.5}, bar{100, 1.2, 1.5}},
		} {
			synctest.Test(t, func(t *testing.T) {
				took, name := exactly(op), "exactly"
				if tc.spread {
					took, name = around(op), "around"
				}
				s := sim{all: tc.all, atOnce: tc.atOnce, took: took, lag: 4 * time.Millisecond, usual: 400 * time.Millisecond}
				cold, warm := s.run()
				if tc.all {
					name += ", all"
				}
				name = fmt.Sprintf("%3d at once, %-12s %5s:", tc.atOnce, name, op)
				t.Log(name, tc.cold.check(t, "cold", cold), tc.warm.check(t, "| warm", warm), none.check(t, "| naive", s.naive()))
			})
		}
	}
}
