package poll_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// TestTheUsualDurationIsLearnt waits for one operation after the other.
func TestTheUsualDurationIsLearnt(t *testing.T) {
	even := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	spread := func(d time.Duration) func(int) time.Duration {
		return func(int) time.Duration { return d - d/10 + rand.N(d/5) }
	}
	tests := map[string]struct {
		start time.Duration
		took  func(i int) time.Duration
		n     int
		from  time.Duration
		to    time.Duration
	}{
		"from a start that is far too short": {100 * time.Millisecond, even(5 * time.Second), 30, 4800 * time.Millisecond, 5500 * time.Millisecond},
		"from a start that is far too long":  {10 * time.Second, even(time.Second), 30, 900 * time.Millisecond, 1200 * time.Millisecond},
		"of operations that differ":          {time.Second, spread(5 * time.Second), 100, 4500 * time.Millisecond, 6000 * time.Millisecond},
		"of minutes":                         {time.Second, even(10 * time.Minute), 30, 570 * time.Second, 660 * time.Second},
		"that has become longer": {time.Second, func(i int) time.Duration {
			return []time.Duration{2 * time.Second, 5 * time.Second}[min(i/50, 1)]
		}, 60, 4800 * time.Millisecond, 5500 * time.Millisecond},
		"that has become shorter": {time.Second, func(i int) time.Duration {
			return []time.Duration{5 * time.Second, 2 * time.Second}[min(i/50, 1)]
		}, 90, 1900 * time.Millisecond, 2300 * time.Millisecond},
		"without those that hang": {time.Second, func(i int) time.Duration {
			if i%10 == 9 {
				return time.Minute
			}
			return 2 * time.Second
		}, 100, 1900 * time.Millisecond, 2500 * time.Millisecond},
		"without three that hang in a row": {time.Second, func(i int) time.Duration {
			if i >= 97 {
				return time.Minute
			}
			return 2 * time.Second
		}, 100, 1900 * time.Millisecond, 2800 * time.Millisecond},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud()
				p := c.poller(tc.start)
				defer p.Close()
				for i := range tc.n {
					if _, err := p.Wait(t.Context(), c.begin(fmt.Sprint(i), tc.took(i)), finished); err != nil {
						t.Fatal(err)
					}
				}
				if u := p.Usual("attach"); u < tc.from || u > tc.to {
					t.Errorf("the usual duration is %s after %d operations, want %s to %s", u, tc.n, tc.from, tc.to)
				}
				if c.ones > 7*tc.n {
					t.Errorf("%d looks for %d operations", c.ones, tc.n)
				}
			})
		})
	}
}

// One machine out of ten that is a little behind the others does not cost every round a look of its own.
func TestOneThatIsALittleBehindIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		p := c.poller(time.Second)
		defer p.Close()
		c.learn(t, p, 2*time.Second)
		round := func() time.Duration {
			var all sync.WaitGroup
			began := time.Now()
			for n := range 10 {
				took := 2 * time.Second
				if n == 9 {
					took += 100 * time.Millisecond
				}
				op := c.begin(fmt.Sprint(n), took)
				all.Go(func() {
					if _, err := p.Wait(t.Context(), op, finished); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			return time.Since(began)
		}
		for range 20 {
			round()
		}
		c.ones, c.manys = 0, 0
		for range 100 {
			if took := round(); took > 2100*time.Millisecond*107/100 {
				t.Errorf("a round of 2.1 s took %s", took)
			}
		}
		if c.ones+c.manys > 130 {
			t.Errorf("%d looks for 100 rounds of ten operations, want about one for each", c.ones+c.manys)
		}
	})
}

func TestWhatFailedTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		p := c.poller(2 * time.Second)
		defer p.Close()
		c.learn(t, p, 2*time.Second)
		usual := p.Usual("attach")
		for i := range 20 {
			_, _ = p.Wait(t.Context(), c.begin(fmt.Sprint(i), 0), func(bool) (bool, error) { return false, fault.Precondition })
		}
		if now := p.Usual("attach"); now != usual {
			t.Errorf("the usual duration went from %s to %s", usual, now)
		}
	})
}

// Whoever waits alone for the first operation of a kind gets its end soon, for few looks, where something is known:
// what somebody else has seen, or how long other kinds take.
func TestTheFirstOfAKindIsSeenSoonWhereSomethingIsKnown(t *testing.T) {
	for name, know := range map[string]func(t *testing.T, c *fakeCloud, p *poll.Poller[string, bool]){
		"from records":          func(_ *testing.T, _ *fakeCloud, p *poll.Poller[string, bool]) { p.Tell("detach", 3*time.Second) },
		"from another kind":     func(t *testing.T, c *fakeCloud, p *poll.Poller[string, bool]) { c.learn(t, p, 4*time.Second) },
		"from records of a few": func(_ *testing.T, _ *fakeCloud, p *poll.Poller[string, bool]) { p.Tell("attach", 4*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud()
				p := c.poller(0)
				defer p.Close()
				know(t, c, p)
				op := c.begin("first", 4*time.Second)
				op.Kind = "detach"
				if _, err := p.Wait(t.Context(), op, finished); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(op.Began); took > 4*time.Second*107/100 || c.ones > 8 {
					t.Errorf("it took 4 s and was waited for for %s, with %d looks", took, c.ones)
				}
				if !p.Known("detach") || p.Known("resize") {
					t.Errorf("known: detach %v, resize %v", p.Known("detach"), p.Known("resize"))
				}
				p.Tell("detach", time.Hour)
				if u := p.Usual("detach"); u > 5*time.Second {
					t.Errorf("hearsay counts for more than what was seen: %s", u)
				}
			})
		})
	}
}

// A bad minute of the cloud, or records of one, makes nobody wait for long after it.
func TestABadMinuteIsSoonForgotten(t *testing.T) {
	const quick = 2 * time.Second
	for name, tc := range map[string]struct {
		slow   int
		told   time.Duration
		waited []time.Duration // at most, by the operations after it
	}{
		"the first was slow":           {slow: 1, waited: []time.Duration{6 * time.Second, 5 * time.Second, 5 * time.Second, 4 * time.Second}},
		"the first three were slow":    {slow: 3, waited: []time.Duration{16 * time.Second, 5 * time.Second, 5 * time.Second}},
		"records of a slow one":        {told: 10 * time.Minute, waited: []time.Duration{6 * time.Second, 5 * time.Second, 5 * time.Second}},
		"records of it and slow again": {slow: 1, told: 10 * time.Minute, waited: []time.Duration{6 * time.Second, 5 * time.Second, 5 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud()
				p := c.poller(0)
				defer p.Close()
				p.Tell("attach", tc.told)
				wait := func(i int, took time.Duration) time.Duration {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					defer cancel()
					op := c.begin(fmt.Sprint(i), took)
					if _, err := p.Wait(ctx, op, finished); err != nil {
						t.Fatal(err)
					}
					return time.Since(op.Began)
				}
				for i := range tc.slow {
					wait(-1-i, time.Minute)
				}
				for i := range 20 {
					most := quick * 5 / 4
					if i < len(tc.waited) {
						most = tc.waited[i]
					} else if i < 14 {
						most = 4 * time.Second
					}
					if waited := wait(i, quick); waited > most {
						t.Errorf("operation %d after it took %s and was waited for for %s, want at most %s", i, quick, waited, most)
					}
				}
			})
		})
	}
}

// What takes longer than its callers wait is seen all the same when it becomes quick.
func TestWhatTakesLongerThanAnybodyWaitsIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		p := c.poller(0)
		defer p.Close()
		c.learn(t, p, 10*time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.Wait(ctx, c.begin("quick", time.Second), finished); err != nil {
			t.Error(err)
		}
	})
}
