package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A machines is a cloud that runs one operation per machine at a time and refuses a second one.
type machines struct {
	took time.Duration

	mu      sync.Mutex
	until   map[string]time.Time
	order   []string
	refused int
	atOnce  int // most operations that ran at the same time
}

func newMachines(took time.Duration) *machines {
	return &machines{took: took, until: map[string]time.Time{}}
}

// change is one operation on a machine; its name is noted when the cloud takes it on.
func (m *machines) change(machine, name string) queue.Change {
	var ends time.Time
	return queue.Change{
		Key: machine,
		Send: func(ctx context.Context) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			now := time.Now()
			if now.Before(m.until[machine]) {
				m.refused++
				return fmt.Errorf("pending event on %s: %w", machine, fault.Busy)
			}
			ends = now.Add(m.took)
			m.until[machine] = ends
			m.order = append(m.order, name)
			running := 0
			for _, until := range m.until {
				if now.Before(until) {
					running++
				}
			}
			m.atOnce = max(m.atOnce, running)
			return nil
		},
		Wait: func(ctx context.Context) error { return sleep(ctx, time.Until(ends)) },
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// at runs f in the background at some second of the simulated time.
func at(group *sync.WaitGroup, second float64, f func()) {
	group.Go(func() {
		<-time.After(time.Duration(second * float64(time.Second)))
		f()
	})
}

func wantUnavailable(t *testing.T, err, why error) {
	t.Helper()
	if fault.Of(err) != fault.Unavailable || !errors.Is(err, why) {
		t.Errorf("error %v, want it to be %q and to wrap %v", err, fault.Unavailable, why)
	}
}

func TestChangesOfOneMachineRunInOrderAndOfDifferentOnesInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, q := newMachines(2*time.Second), queue.New(queue.Config{})
		defer q.Close()
		began := time.Now()
		var group sync.WaitGroup
		for i := range 5 {
			for _, machine := range []string{"a", "b"} {
				at(&group, float64(i)/10, func() {
					if err := q.Do(t.Context(), m.change(machine, fmt.Sprint(machine, i))); err != nil {
						t.Error(err)
					}
				})
			}
		}
		group.Wait()
		var a []string
		for _, name := range m.order {
			if name[0] == 'a' {
				a = append(a, name)
			}
		}
		if want := []string{"a0", "a1", "a2", "a3", "a4"}; !slices.Equal(a, want) {
			t.Errorf("order on machine a: %v, want %v", a, want)
		}
		if took := time.Since(began); took != 10*time.Second || m.refused > 0 {
			t.Errorf("took %s with %d refusals, want 10s and none", took, m.refused)
		}
	})
}

func TestAChangeWhoseContextEndsBeforeItsTurnIsNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, q := newMachines(10*time.Second), queue.New(queue.Config{})
		defer q.Close()
		var group sync.WaitGroup
		at(&group, 0, func() { _ = q.Do(t.Context(), m.change("a", "first")) })
		at(&group, 1, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			wantUnavailable(t, q.Do(ctx, m.change("a", "late")), context.DeadlineExceeded)
		})
		at(&group, 2, func() { _ = q.Do(t.Context(), m.change("a", "last")) })
		at(&group, 3, func() {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			wantUnavailable(t, q.Do(ctx, m.change("b", "ended before")), context.Canceled)
		})
		group.Wait()
		if want := []string{"first", "last"}; !slices.Equal(m.order, want) || m.refused > 0 {
			t.Errorf("sent %v with %d refusals, want %v and none", m.order, m.refused, want)
		}
	})
}

func TestAKeyIsHeldUntilTheOperationHasEndedNotItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, q := newMachines(10*time.Second), queue.New(queue.Config{})
		defer q.Close()
		began := time.Now()
		var group sync.WaitGroup
		at(&group, 0, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if err := q.Do(ctx, m.change("a", "first")); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Second {
				t.Errorf("Do = %v after %s, want the end of its context after 2s", err, time.Since(began))
			}
		})
		at(&group, 1, func() {
			if err := q.Do(t.Context(), m.change("a", "second")); err != nil {
				t.Error(err)
			}
		})
		group.Wait()
		if took := time.Since(began); took != 20*time.Second || m.refused > 0 {
			t.Errorf("took %s with %d refusals, want 20s and none", took, m.refused)
		}
	})
}

func TestAWatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{Watch: time.Minute})
		defer q.Close()
		hangs := queue.Change{
			Key:  "a",
			Send: func(context.Context) error { return nil },
			Wait: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_ = q.Do(ctx, hangs)
		slot, err := q.Acquire(t.Context(), "a")
		if err != nil || time.Since(began) != time.Minute+time.Second {
			t.Fatalf("the next turn came after %s (%v), want 1m1s", time.Since(began), err)
		}
		slot.Release()
		slot.Release() // does nothing
	})
}

func TestCapacityHoldsOverAllKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, q := newMachines(2*time.Second), queue.New(queue.Config{Capacity: 3})
		defer q.Close()
		began := time.Now()
		var group sync.WaitGroup
		for i := range 12 {
			group.Go(func() {
				if err := q.Do(t.Context(), m.change(fmt.Sprint(i), fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if took := time.Since(began); took != 8*time.Second || m.atOnce != 3 {
			t.Errorf("took %s with %d at once, want 8s with 3", took, m.atOnce)
		}
	})
}

func TestCapacityIsNotSpentOnAKeyThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, q := newMachines(2*time.Second), queue.New(queue.Config{Capacity: 2})
		defer q.Close()
		began := time.Now()
		var group sync.WaitGroup
		for i, machine := range []string{"a", "a", "b"} {
			at(&group, float64(i)/10, func() { _ = q.Do(t.Context(), m.change(machine, machine)) })
		}
		group.Wait()
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("took %s, want 4s: b does not wait behind the second a", took)
		}
	})
}

func TestChangesWithoutAKeyOnlyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{Capacity: 2})
		defer q.Close()
		first, _ := q.Acquire(t.Context(), "")
		second, _ := q.Acquire(t.Context(), "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := q.Acquire(ctx, "")
		wantUnavailable(t, err, context.DeadlineExceeded)
		first.Release()
		second.Release()
	})
}

func TestTwoControllersShareTheMachinesByGivingWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachines(2 * time.Second)
		began := time.Now()
		var group sync.WaitGroup
		for c := range 2 {
			q := queue.New(queue.Config{})
			defer q.Close()
			for i := range 10 {
				group.Go(func() {
					if err := q.Do(t.Context(), m.change("a", fmt.Sprint(c, i))); err != nil {
						t.Error(err)
					}
				})
			}
		}
		group.Wait()
		if took := time.Since(began); took > 60*time.Second || len(m.order) != 20 {
			t.Errorf("%d changes took %s, want 20 in at most 60s (40s is the least)", len(m.order), took)
		}
		if m.refused > 80 {
			t.Errorf("%d refusals, want at most 4 for each change", m.refused)
		}
		t.Logf("20 changes of 2s by two controllers: %s, %d refusals", time.Since(began), m.refused)
	})
}

func TestARefusalGivesTheCapacityAndNotTheKeyToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, q := newMachines(2*time.Second), queue.New(queue.Config{Capacity: 1})
		defer q.Close()
		if err := m.change("a", "foreign").Send(t.Context()); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		at(&group, 0.1, func() { _ = q.Do(t.Context(), m.change("a", "refused first")) })
		at(&group, 0.2, func() { _ = q.Do(t.Context(), m.change("a", "behind it")) })
		at(&group, 0.3, func() { _ = q.Do(t.Context(), m.change("b", "elsewhere")) })
		group.Wait()
		if want := []string{"foreign", "elsewhere", "refused first", "behind it"}; !slices.Equal(m.order, want) {
			t.Errorf("order %v, want %v", m.order, want)
		}
	})
}

func TestABusyThatLastsEndsWithTheContextAndKeepsItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{})
		defer q.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sent := 0
		err := q.Do(ctx, queue.Change{Key: "a", Send: func(context.Context) error {
			sent++
			return fmt.Errorf("pending event: %w", fault.Busy)
		}})
		if fault.Of(err) != fault.Busy || !errors.Is(err, context.DeadlineExceeded) || sent < 15 || sent > 40 {
			t.Errorf("Do = %v after %d writes, want busy and the deadline after 15 to 40", err, sent)
		}
		slot, err := q.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		slot.Release()
	})
}

func TestOtherErrorsOfSendAreFinal(t *testing.T) {
	for _, kind := range []fault.Kind{fault.Uncertain, fault.Unavailable, fault.NotFound, fault.None} {
		q := queue.New(queue.Config{})
		want := fmt.Errorf("attach: %w", kind)
		sent := 0
		err := q.Do(t.Context(), queue.Change{
			Key:  "a",
			Send: func(context.Context) error { sent++; return want },
			Wait: func(context.Context) error { t.Error("waits for a write that failed"); return nil },
		})
		if !errors.Is(err, want) || sent != 1 {
			t.Errorf("Do = %v after %d writes, want %v after one", err, sent, want)
		}
		q.Close()
	}
}

func TestCloseEndsWaitsAndWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, q := newMachines(time.Hour), queue.New(queue.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = q.Do(ctx, m.change("a", "watched"))
		var group sync.WaitGroup
		group.Go(func() { wantUnavailable(t, q.Do(t.Context(), m.change("a", "waits")), context.Canceled) })
		synctest.Wait()
		q.Close()
		group.Wait()
		wantUnavailable(t, q.Do(t.Context(), m.change("b", "after the end")), context.Canceled)
		if want := []string{"watched"}; !slices.Equal(m.order, want) {
			t.Errorf("sent %v, want %v", m.order, want)
		}
	})
}
