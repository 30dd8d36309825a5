package budget_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheLimitsHoldWhateverIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := []budget.Window{{Calls: 250, Per: time.Minute}, {Calls: 700, Per: time.Hour, FromHeaders: true}}
		a, g := &account{windows: limits}, budget.New(budget.Config{Windows: limits})
		began := time.Now()
		cloudtest.AtOnce(t, 1000, func(i int) error {
			time.Sleep(rand.N(3 * time.Minute))
			return call(t.Context(), g, a, budget.Priority(1+i%5))
		})
		if a.refused > 0 || time.Since(began) > 70*time.Minute {
			t.Errorf("%d of %d requests refused in %s, want none in little more than an hour", a.refused, a.all, time.Since(began))
		}
	})
}

func TestTheMoreUrgentGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := budget.New(budget.Config{Windows: []budget.Window{{Calls: 1, Per: time.Second}}})
		must(t, g.Acquire(t.Context(), budget.List))
		var order []budget.Priority
		var mu sync.Mutex
		var group sync.WaitGroup
		for _, p := range []budget.Priority{budget.List, budget.Read, budget.Write, budget.Attach, budget.Detach, budget.Attach, budget.Detach} {
			group.Go(func() {
				if err := g.Acquire(t.Context(), p); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, p)
			})
			synctest.Wait()
		}
		group.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("order %v, want it to be sorted", order)
		}
	})
}

func TestAListWaitsForDetachesOnlyForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := budget.New(budget.Config{Windows: []budget.Window{{Calls: 2, Per: time.Second}}})
		flood, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				for g.Acquire(flood, budget.Detach) == nil {
				}
			})
		}
		time.Sleep(5 * time.Second)
		began := time.Now()
		if err := g.Acquire(t.Context(), budget.List); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 2*time.Minute || took > 3*time.Minute {
			t.Errorf("a list waited %s behind a flood of detaches, want 2m to 3m", took)
		}
		stop()
		group.Wait()
	})
}

func TestDetachesGoBeforeAFloodThatHasWaitedLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := budget.New(budget.Config{Windows: []budget.Window{{Calls: 10, Per: time.Minute}}})
		var mu sync.Mutex
		var went []budget.Priority
		var group sync.WaitGroup
		ask := func(n int, p budget.Priority) {
			for range n {
				group.Go(func() {
					if err := g.Acquire(t.Context(), p); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					went = append(went, p)
				})
			}
		}
		ask(30, budget.Write)
		time.Sleep(50 * time.Second)
		ask(5, budget.Detach)
		group.Wait()
		// The first minute's budget was spent before they came. What is handed out at one instant arrives here in
		// any order.
		slices.Sort(went[10:20])
		if first := slices.Index(went, budget.Detach); first != 10 || slices.Contains(went[10:15], budget.Write) {
			t.Errorf("they went in the order %v, want the detaches with the second minute's budget", went)
		}
	})
}

// atOnce returns how many requests go within a second.
func atOnce(t *testing.T, g *budget.Governor, p budget.Priority) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for g.Acquire(ctx, p) == nil {
		n++
	}
	return n
}

func TestListsLeaveAReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := budget.New(budget.Config{Windows: []budget.Window{{Calls: 100, Per: time.Minute}}})
		lists := atOnce(t, g, budget.List)
		detaches := atOnce(t, g, budget.Detach)
		if lists != 80 || detaches != 20 {
			t.Errorf("%d lists and %d detaches, want 80 and 20", lists, detaches)
		}
	})
}

func TestWhatOthersSpendIsBelievedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := budget.New(budget.Config{Windows: []budget.Window{{Calls: 100, Per: time.Minute, FromHeaders: true}}})
		g.Learn(budget.Rate{Limit: 50, Remaining: 10}) // and the account has another limit
		took := func(n int) time.Duration {
			began := time.Now()
			for range n {
				must(t, g.Acquire(t.Context(), budget.Detach))
			}
			return time.Since(began)
		}
		if first := took(10); first != 0 {
			t.Errorf("the 10 that are left took %s, want no time", first)
		}
		// The 40 of the others leave the window evenly within a minute.
		if more := took(20); more < 25*time.Second || more > 35*time.Second {
			t.Errorf("20 more took %s, want about 30s", more)
		}
	})
}

func TestAWindowThatIsAShareFollowsTheLimitInTheHeaders(t *testing.T) {
	for name, tc := range map[string]struct {
		window budget.Window
		limit  int
		want   int
	}{
		"a higher limit":       {budget.Window{Calls: 250, Per: time.Minute, Fraction: .05}, 20_000, 1000},
		"a lower limit":        {budget.Window{Calls: 250, Per: time.Minute, Fraction: .05}, 1000, 50},
		"a limit of next to 0": {budget.Window{Calls: 250, Per: time.Minute, Fraction: .05}, 10, 1},
		"a fixed window":       {budget.Window{Calls: 250, Per: time.Minute, Fraction: .05, Fixed: true}, 20_000, 250},
		"a window of its own":  {budget.Window{Calls: 250, Per: time.Minute}, 20_000, 250},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := budget.New(budget.Config{Windows: []budget.Window{tc.window, {Calls: 5000, Per: time.Hour, FromHeaders: true}}})
				g.Learn(budget.Rate{Limit: tc.limit, Remaining: tc.limit})
				if got := atOnce(t, g, budget.Detach); got != tc.want {
					t.Errorf("%d requests at once, want %d", got, tc.want)
				}
			})
		})
	}
}

func TestAFixedLimitIsNotRaisedByWhatTheCloudSays(t *testing.T) {
	tests := map[string]struct {
		said budget.Rate
		want int
	}{
		"nothing":                            {budget.Rate{}, 20},
		"a higher limit with room":           {budget.Rate{Limit: 100, Remaining: 90}, 20},
		"a higher limit with less room":      {budget.Rate{Limit: 100, Remaining: 5}, 5},
		"a lower limit":                      {budget.Rate{Limit: 10, Remaining: 10}, 10},
		"its own limit, of which others use": {budget.Rate{Limit: 20, Remaining: 15}, 15},
		"a higher limit with no room at all": {budget.Rate{Limit: 100}, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := budget.New(budget.Config{Windows: []budget.Window{{Calls: 20, Per: time.Hour, FromHeaders: true, Fixed: true}}})
				g.Learn(tc.said)
				if sent := atOnce(t, g, budget.Detach); sent != tc.want {
					t.Errorf("%d requests went at once, want %d", sent, tc.want)
				}
			})
		})
	}
}

func TestARequestThatGaveUpSpendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := budget.New(budget.Config{Windows: []budget.Window{{Calls: 1, Per: time.Minute}}})
		must(t, g.Acquire(t.Context(), budget.Detach))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { _ = g.Acquire(ctx, budget.Detach) })
		}
		group.Wait()
		began := time.Now()
		if err := g.Acquire(t.Context(), budget.List); err != nil || time.Since(began) > time.Minute+time.Second {
			t.Errorf("the next one came after %s (%v), want a minute", time.Since(began), err)
		}
	})
}
