package poll_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeCloud has operations that end at some time, and answers looks after a lag with the state at
// their beginning.
type fakeCloud struct {
	lag time.Duration

	mu        sync.Mutex
	ends      map[string]time.Time
	unlisted  map[string]bool // many does not know them
	stale     map[string]bool // many shows them running for ever
	failing   error           // of every look
	listFails error           // of many
	ones      int
	manys     int
	asked     int // keys in all manys
	cancelled int // looks whose context ended
}

func newCloud() *fakeCloud {
	return &fakeCloud{ends: map[string]time.Time{}, unlisted: map[string]bool{}, stale: map[string]bool{}}
}

// begin starts an operation now.
func (c *fakeCloud) begin(key string, took time.Duration) poll.Operation[string] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends[key] = time.Now().Add(took)
	return poll.Operation[string]{Key: key, Kind: "attach", Began: time.Now()}
}

func (c *fakeCloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *fakeCloud) answer(ctx context.Context) error {
	select {
	case <-time.After(c.lag):
		return nil
	case <-ctx.Done():
		c.set(func() { c.cancelled++ })
		return ctx.Err()
	}
}

func (c *fakeCloud) one(ctx context.Context, key string) (bool, error) {
	c.mu.Lock()
	c.ones++
	end, ok := c.ends[key]
	done, err := !time.Now().Before(end), c.failing
	c.mu.Unlock()
	if err := c.answer(ctx); err != nil {
		return false, err
	}
	if !ok {
		return false, fmt.Errorf("operation %s: %w", key, fault.NotFound)
	}
	return done, err
}

func (c *fakeCloud) many(ctx context.Context, keys []string) (map[string]bool, error) {
	c.mu.Lock()
	c.manys++
	c.asked += len(keys)
	states := map[string]bool{}
	for _, key := range keys {
		if end, ok := c.ends[key]; ok && !c.unlisted[key] {
			states[key] = !time.Now().Before(end) && !c.stale[key]
		}
	}
	err := errors.Join(c.failing, c.listFails)
	c.mu.Unlock()
	if err := c.answer(ctx); err != nil {
		return nil, err
	}
	return states, err
}

func (c *fakeCloud) source() poll.Source[string, bool] {
	return poll.Source[string, bool]{One: c.one, Many: c.many}
}

func (c *fakeCloud) poller(usual time.Duration) *poll.Poller[string, bool] {
	return poll.New(poll.Config[string, bool]{Source: c.source(), Usual: map[poll.Kind]time.Duration{"attach": usual}})
}

// learn teaches a poller how long operations take.
func (c *fakeCloud) learn(t *testing.T, p *poll.Poller[string, bool], took time.Duration) {
	t.Helper()
	for i := range 12 {
		if _, err := p.Wait(t.Context(), c.begin(fmt.Sprint("taught", i), took), finished); err != nil {
			t.Fatal(err)
		}
	}
	c.ones, c.manys, c.asked = 0, 0, 0
}

func TestALoneWaiterIsLookedUpByItselfAndManyByAList(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud()
			p := c.poller(2 * time.Second)
			defer p.Close()
			c.learn(t, p, 2*time.Second)
			var group sync.WaitGroup
			for i := range n {
				op := c.begin(fmt.Sprint(i), 1990*time.Millisecond)
				group.Go(func() {
					if done, err := p.Wait(t.Context(), op, finished); err != nil || !done {
						t.Errorf("Wait = %v, %v, want true", done, err)
					}
				})
			}
			group.Wait()
			if n == 1 && (c.ones > 2 || c.manys != 0) || n > 1 && (c.ones != 0 || c.manys > 2) {
				t.Errorf("%d waiters: %d single looks and %d lists", n, c.ones, c.manys)
			}
		})
	}
}

func TestALookAnswersNobodyWhoCameAfterItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.lag = 3 * time.Second
		p := c.poller(time.Second)
		defer p.Close()
		var group sync.WaitGroup
		for _, key := range []string{"a", "b"} { // looked at from 1s to 4s
			op := c.begin(key, time.Second)
			group.Go(func() { _, _ = p.Wait(t.Context(), op, finished) })
		}
		time.Sleep(2 * time.Second)
		began := time.Now()
		op := poll.Operation[string]{Key: "a", Kind: "attach"} // joins a
		if _, err := p.Wait(t.Context(), op, finished); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("answered after %s (%v), want 3s: by a look of its own", time.Since(began), err)
		}
		group.Wait()
		if c.manys != 1 || c.ones != 1 {
			t.Errorf("%d lists and %d single looks, want one each: nobody is asked about twice", c.manys, c.ones)
		}
	})
}

func TestAListAnswersThoseTooThatWereNotDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		p := poll.New(poll.Config[string, bool]{
			Source: c.source(), Usual: map[poll.Kind]time.Duration{"attach": 2 * time.Second, "restore": time.Minute},
		})
		defer p.Close()
		var group sync.WaitGroup
		for _, key := range []string{"a", "b", "quick restore"} {
			op := c.begin(key, time.Second)
			if key == "quick restore" {
				op.Kind = "restore"
			}
			group.Go(func() {
				began := time.Now()
				if _, err := p.Wait(t.Context(), op, finished); err != nil || time.Since(began) > 2200*time.Millisecond {
					t.Errorf("%s: %v after %s, want the list at 2s", key, err, time.Since(began))
				}
			})
		}
		group.Wait()
	})
}

func TestAnOperationFoundRunningIsLookedAtAtOnceAndTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		p := c.poller(2 * time.Second)
		defer p.Close()
		c.learn(t, p, 2*time.Second)
		usual := p.Usual("attach")
		for i := range 20 {
			op := c.begin(fmt.Sprint(i), time.Duration(i%2)*50*time.Millisecond)
			op.Began = time.Time{}
			if i%4 == 2 {
				op.Began = time.Now().Add(-time.Hour)
			}
			began := time.Now()
			if _, err := p.Wait(t.Context(), op, finished); err != nil || time.Since(began) > 250*time.Millisecond {
				t.Errorf("answered after %s (%v), want nearly at once", time.Since(began), err)
			}
		}
		if now := p.Usual("attach"); now != usual {
			t.Errorf("the usual duration went from %s to %s", usual, now)
		}
	})
}

func TestWhatAListCannotShowIsLookedUpByItself(t *testing.T) {
	tests := map[string]struct {
		arm    func(c *fakeCloud)
		within time.Duration
	}{
		"an operation that the list lacks, in the same turn":       {func(c *fakeCloud) { c.unlisted["a"] = true }, 2300 * time.Millisecond},
		"one that the list shows wrongly, at twice its usual time": {func(c *fakeCloud) { c.stale["a"] = true }, 4600 * time.Millisecond},
		"all, if the list is not allowed":                          {func(c *fakeCloud) { c.listFails = fault.Denied }, 2300 * time.Millisecond},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud()
				p := c.poller(2 * time.Second)
				defer p.Close()
				c.learn(t, p, 2*time.Second)
				tc.arm(c)
				began := time.Now()
				var group sync.WaitGroup
				for _, key := range []string{"a", "b", "c"} {
					op := c.begin(key, 2*time.Second)
					if key == "c" {
						c.ends[key] = began.Add(10 * time.Second) // so that there is a list to ask
					}
					group.Go(func() {
						_, err := p.Wait(t.Context(), op, finished)
						if took := time.Since(began); err != nil || key == "a" && took > tc.within {
							t.Errorf("%s: %v after %s, want within %s", key, err, took, tc.within)
						}
					})
				}
				group.Wait()
			})
		})
	}
}

func TestALookThatFailsIsADelayOrAnEnd(t *testing.T) {
	for _, err := range []error{fault.Unavailable, fault.Busy, errors.New("connection reset")} {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud()
			p := c.poller(time.Second)
			defer p.Close()
			c.failing = err
			began := time.Now()
			op := c.begin("a", time.Second)
			time.AfterFunc(time.Minute, func() { c.set(func() { c.failing = nil }) })
			if _, got := p.Wait(t.Context(), op, finished); got != nil || time.Since(began) > 72*time.Second {
				t.Errorf("Wait = %v after %s, want no error soon after a minute", got, time.Since(began))
			}
			if c.ones > 16 {
				t.Errorf("%d looks in a minute of failures, want growing pauses", c.ones)
			}
			c.failing = err
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, got := p.Wait(ctx, op, finished); !errors.Is(got, err) || !errors.Is(got, context.DeadlineExceeded) {
				t.Errorf("Wait = %v, want the deadline and %v", got, err)
			}
		})
	}
	for _, err := range []error{fault.NotFound, fault.Denied} {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud()
			p := c.poller(time.Second)
			defer p.Close()
			c.failing = err
			began := time.Now()
			if _, got := p.Wait(t.Context(), c.begin("a", time.Second), finished); !errors.Is(got, err) || time.Since(began) > 2*time.Second {
				t.Errorf("Wait = %v after %s, want %v at the first look", got, time.Since(began), err)
			}
		})
	}
}

func TestDoneEndsTheWaitWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		p := c.poller(time.Second)
		defer p.Close()
		want := fmt.Errorf("errored: %w", fault.Precondition)
		op := c.begin("a", 0)
		if _, err := p.Wait(t.Context(), op, func(bool) (bool, error) { return false, want }); !errors.Is(err, want) {
			t.Errorf("Wait = %v, want %v", err, want)
		}
	})
}

func TestAContextThatEndsStopsItsWaiterOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.lag = 10 * time.Second
		p := c.poller(time.Second)
		defer p.Close()
		short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var group sync.WaitGroup
		for i, ctx := range []context.Context{short, t.Context()} {
			op := c.begin(fmt.Sprint(i), time.Second)
			group.Go(func() {
				began := time.Now()
				_, err := p.Wait(ctx, op, finished)
				if took := time.Since(began); i == 0 && (!errors.Is(err, context.DeadlineExceeded) || took != 2*time.Second) || i == 1 && err != nil {
					t.Errorf("waiter %d: %v after %s", i, err, took)
				}
			})
		}
		group.Wait()
		if c.cancelled != 0 {
			t.Error("the look was cancelled although somebody waited for it")
		}
		// And a look that nobody waits for any more is cancelled.
		last, end := context.WithTimeout(t.Context(), 2*time.Second)
		defer end()
		_, _ = p.Wait(last, c.begin("last", time.Second), finished)
		synctest.Wait()
		if c.cancelled != 1 {
			t.Errorf("%d looks cancelled, want the one that nobody waits for", c.cancelled)
		}
	})
}

func TestCloseEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.lag = time.Hour
		p := c.poller(time.Second)
		var group sync.WaitGroup
		for i := range 3 {
			op := c.begin(fmt.Sprint(i), time.Duration(i)*time.Second)
			group.Go(func() {
				if _, err := p.Wait(t.Context(), op, finished); fault.Of(err) != fault.Unavailable {
					t.Errorf("Wait = %v, want unavailable", err)
				}
			})
		}
		time.Sleep(1500 * time.Millisecond) // looks are under way
		began := time.Now()
		p.Close()
		group.Wait()
		if _, err := p.Wait(t.Context(), c.begin("late", 0), finished); fault.Of(err) != fault.Unavailable || time.Since(began) != 0 {
			t.Errorf("Wait after Close = %v after %s, want unavailable at once", err, time.Since(began))
		}
	})
}

// BenchmarkAThousandWaiters is one turn of a thousand waiters that all end in it.
func BenchmarkAThousandWaiters(b *testing.B) {
	source := poll.Source[int, bool]{
		One: func(context.Context, int) (bool, error) { return true, nil },
		Many: func(_ context.Context, keys []int) (map[int]bool, error) {
			states := make(map[int]bool, len(keys))
			for _, key := range keys {
				states[key] = true
			}
			return states, nil
		},
	}
	p := poll.New(poll.Config[int, bool]{Source: source})
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		var group sync.WaitGroup
		for i := range 1000 {
			group.Go(func() {
				_, _ = p.Wait(b.Context(), poll.Operation[int]{Key: i, Kind: "attach"}, finished)
			})
		}
		group.Wait()
	}
}
