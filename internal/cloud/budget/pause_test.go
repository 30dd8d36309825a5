package budget_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestARefusalPausesEverythingAndThenGoesOnSlowly(t *testing.T) {
	tests := map[string]struct {
		rate  budget.Rate
		pause time.Duration
	}{
		"as long as the cloud asks for":             {budget.Rate{RetryAfter: 20 * time.Second}, 20 * time.Second},
		"until the reset if nothing is left":        {budget.Rate{Limit: 100, Reset: time.Date(2000, 1, 1, 0, 0, 40, 0, time.UTC)}, 40 * time.Second},
		"a second if the cloud does not say how":    {budget.Rate{}, time.Second},
		"a second if something seems to be left":    {budget.Rate{Limit: 100, Remaining: 7, Reset: time.Date(2000, 1, 1, 0, 0, 40, 0, time.UTC)}, time.Second},
		"a wait that is asked for beats the reset":  {budget.Rate{Limit: 100, RetryAfter: 3 * time.Second, Reset: time.Date(2000, 1, 1, 0, 0, 40, 0, time.UTC)}, 3 * time.Second},
		"a reset that has passed says nothing":      {budget.Rate{Limit: 100, Reset: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)}, time.Second},
		"what the cloud asks for is bounded though": {budget.Rate{RetryAfter: 1000 * time.Hour}, time.Hour},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := budget.New(budget.Config{Windows: []budget.Window{{Calls: 100, Per: time.Minute, FromHeaders: true}}})
				began := time.Now()
				tc.rate.Refused = true
				for range 16 { // those under way together are refused together
					g.Learn(tc.rate)
				}
				must(t, g.Acquire(t.Context(), budget.Detach))
				if took := time.Since(began); took < tc.pause || took > tc.pause+tc.pause/8+time.Second {
					t.Errorf("paused for %s, want %s", took, tc.pause)
				}
				began = time.Now()
				for range 20 {
					must(t, g.Acquire(t.Context(), budget.Detach))
				}
				if took := time.Since(began); took < 6*time.Second || took > 20*time.Second {
					t.Errorf("20 more took %s, want them spread over 12s", took)
				}
			})
		})
	}
}

func TestRefusalsInARowPauseLongerUntilOneIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := budget.New(budget.Config{})
		pause := func() time.Duration {
			began := time.Now()
			must(t, g.Acquire(t.Context(), budget.Detach))
			return time.Since(began).Round(time.Second)
		}
		var got []time.Duration
		for range 7 {
			g.Learn(budget.Rate{Refused: true})
			got = append(got, pause())
		}
		for i, want := range []int{1, 2, 4, 8, 16, 30, 30} {
			if d := got[i].Seconds(); d < float64(want) || d > 1.1*float64(want)+1 {
				t.Errorf("pause %d is %s, want %ds", i, got[i], want)
			}
		}
		g.Learn(budget.Rate{})
		g.Learn(budget.Rate{Refused: true})
		if again := pause(); again > 2*time.Second {
			t.Errorf("the pause after a success is %s, want 1s", again)
		}
	})
}

func TestAContextThatEndsGetsTheCloudsWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := budget.New(budget.Config{Name: "lists"})
		g.Learn(budget.Rate{Refused: true, RetryAfter: time.Hour, Words: "429 API rate limit exceeded."})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := g.Acquire(ctx, budget.Write)
		if fault.Of(err) != fault.Unavailable || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "API rate limit exceeded.") || !strings.Contains(err.Error(), "lists") {
			t.Errorf("Acquire = %v, want unavailable, the deadline, and the cloud's words", err)
		}
		if err := g.Acquire(ctx, budget.Detach); fault.Of(err) != fault.Unavailable || strings.Contains(err.Error(), "budget") {
			t.Errorf("Acquire after the end = %v, want unavailable, and not for the budget", err)
		}
	})
}
