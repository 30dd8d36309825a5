package budget_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
)

// P1: the test takes 100 volumes, 16 at a time, through create, attach, detach and delete, with operations of 2 s on 10
// machines and a look for each two of them.
func TestAHundredVolumesOnAScarceBudget(t *testing.T) {
	minute := func(calls int) []budget.Window { return []budget.Window{{Calls: calls, Per: time.Minute}} }
	tests := map[string]struct {
		windows     []budget.Window
		controllers int
		silent      bool
		refused     float64 // share that is allowed
	}{
		"the limits of one large cloud":           {[]budget.Window{{Calls: 250, Per: time.Minute}, {Calls: 5000, Per: time.Hour, FromHeaders: true}}, 1, false, 0},
		"a tenth more than needed in ten minutes": {[]budget.Window{{Calls: 550, Per: 10 * time.Minute, FromHeaders: true}}, 1, false, 0},
		"a tenth more than needed, not told":      {[]budget.Window{{Calls: 550, Per: 10 * time.Minute}}, 1, true, 0},
		"a tenth of what is needed in a minute":   {minute(50), 1, false, 0},
		"two controllers, told":                   {[]budget.Window{{Calls: 250, Per: time.Minute, FromHeaders: true}}, 2, false, 0.01},
		"two controllers, not told":               {minute(250), 2, false, 0.05},
		"two controllers, silent":                 {minute(250), 2, true, 0.1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &account{windows: tc.windows, silent: tc.silent}
				next := make(chan int, 100)
				for v := range 100 {
					next <- v
				}
				close(next)
				machines := make([]chan struct{}, 10)
				for i := range machines {
					machines[i] = make(chan struct{}, 1)
				}
				began := time.Now()
				var group sync.WaitGroup
				var mu sync.Mutex
				longest := map[budget.Priority]time.Duration{}
				for range tc.controllers {
					g := budget.New(budget.Config{Windows: tc.windows})
					must := func(p budget.Priority) {
						ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
						defer cancel()
						asked := time.Now()
						if err := call(ctx, g, a, p); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						longest[p] = max(longest[p], time.Since(asked))
					}
					for range 16 / tc.controllers {
						group.Go(func() {
							for v := range next {
								must(budget.Write)
								for i, p := range []budget.Priority{budget.Attach, budget.Detach} {
									machines[v%10] <- struct{}{}
									must(p)
									time.Sleep(2 * time.Second)
									if i == v%2 {
										must(budget.Read)
									}
									<-machines[v%10]
								}
								must(budget.Write)
							}
						})
					}
				}
				group.Wait()
				share := float64(a.refused) / float64(a.all)
				t.Logf("%4d requests %3d refused (%.1f %%) %6s longest waits: detach %s attach %s write %s read %s", a.all, a.refused, 100*share,
					time.Since(began).Round(time.Second), longest[budget.Detach].Round(time.Second), longest[budget.Attach].Round(time.Second), longest[budget.Write].Round(time.Second), longest[budget.Read].Round(time.Second))
				if share > tc.refused {
					t.Errorf("%d of %d requests refused, want at most %.0f %%", a.refused, a.all, 100*tc.refused)
				}
			})
		})
	}
}
