package budget_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
)

// An account is a cloud that allows so many requests in each of its sliding windows, whoever sends
// them, and tells what is left in the longest.
type account struct {
	windows []budget.Window
	silent  bool // tells nothing about what is left, nor how long to wait

	mu           sync.Mutex
	taken        []time.Time
	all, refused int
}

func (a *account) request(ctx context.Context) budget.Rate {
	after(ctx, rand.N(50*time.Millisecond))
	defer after(ctx, rand.N(50*time.Millisecond))
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.all++
	var r budget.Rate
	for _, w := range a.windows {
		var used []time.Time
		for _, at := range a.taken {
			if now.Sub(at) < w.Per {
				used = append(used, at)
			}
		}
		if len(used) >= w.Calls {
			r.Refused, r.Words = true, "429 too many requests"
			r.RetryAfter = max(r.RetryAfter, (used[0].Add(w.Per).Sub(now)).Truncate(time.Second)+time.Second)
		}
		if w.FromHeaders {
			r.Limit, r.Remaining = w.Calls, max(0, w.Calls-len(used)-1)
			if len(used) > 0 {
				r.Reset = used[0].Add(w.Per)
			}
		}
	}
	if r.Refused {
		a.refused++
	} else {
		a.taken = append(a.taken, now)
	}
	if a.silent {
		return budget.Rate{Refused: r.Refused, Words: r.Words}
	}
	return r
}

func after(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// call sends one request with a budget and repeats it when it is refused.
func call(ctx context.Context, g *budget.Governor, a *account, p budget.Priority) error {
	for {
		if err := g.Acquire(ctx, p); err != nil {
			return err
		}
		r := a.request(ctx)
		g.Learn(r)
		if !r.Refused {
			return nil
		}
	}
}
