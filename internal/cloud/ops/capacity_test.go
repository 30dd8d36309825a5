package ops_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
)

// crowd counts the requests that the cloud has at once.
type crowd struct {
	mu           sync.Mutex
	atOnce, most int
}

func (c *crowd) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.atOnce += n
	c.most = max(c.most, c.atOnce)
}

// P1: where the cloud runs so many operations at a time, no more are sent, and the most urgent change gets the next
// place. Changes of one machine keep their order.
func TestACapacityIsGrantedInOrderOfPriority(t *testing.T) {
	simulated(t, ops.Config{Tracker: newSite(0), Capacity: 2}, func(t *testing.T, r *ops.Runner) {
		var mu sync.Mutex
		var order []string
		var sent crowd
		change := func(name, machine string, p budget.Priority) ops.Op[int] {
			return ops.Op[int]{
				Name: name, Kind: "set", Object: name, Machine: machine, Priority: p,
				Submit: func(_ context.Context, w *ops.Write) (int, string, error) {
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					sent.add(1)
					time.Sleep(time.Second)
					sent.add(-1)
					return 0, "", nil
				},
			}
		}
		var all sync.WaitGroup
		for i, op := range []ops.Op[int]{
			change("create 1", "", budget.Write), change("create 2", "", budget.Write), // these run
			change("create 3", "", budget.Write), change("attach 1", "m", budget.Attach), change("detach 1", "n", budget.Detach),
			change("detach 2", "m", budget.Detach), change("create 4", "", budget.Write),
		} {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				succeeds(t, r, op)
			})
		}
		all.Wait()
		if want := []string{"create 1", "create 2", "detach 1", "attach 1", "create 3", "detach 2", "create 4"}; sent.most != 2 ||
			!slices.Equal(order[:4], want[:4]) || slices.Index(order, "detach 2") < slices.Index(order, "attach 1") {
			t.Errorf("%d at once, in the order %v, want 2 and %v", sent.most, order, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // a caller that goes leaves its place
		defer cancel()
		for i := range 2 {
			all.Go(func() { _, _ = ops.Run(t.Context(), r, change(fmt.Sprint("later ", i), "", budget.Write)) })
		}
		synctest.Wait()
		if _, err := ops.Run(ctx, r, change("dropped", "", budget.Detach)); err == nil || slices.Contains(order, "dropped") {
			t.Errorf("a change that found no place = %v, %v", err, order)
		}
		all.Wait()
	})
}

// P1: slow creates, however many, leave places to detaches and attaches, and all of them together are no more than the
// capacity.
func TestSlowCreatesLeavePlacesToDetachesAndAttaches(t *testing.T) {
	simulated(t, ops.Config{Tracker: newSite(0), Capacity: 15}, func(t *testing.T, r *ops.Runner) {
		var sent crowd
		var all sync.WaitGroup
		change := func(name string, p budget.Priority, takes, within time.Duration) {
			began := time.Now()
			_, err := ops.Run(t.Context(), r, ops.Op[int]{Name: name, Kind: "set", Object: name, Priority: p,
				Submit: func(context.Context, *ops.Write) (int, string, error) {
					sent.add(1)
					time.Sleep(takes)
					sent.add(-1)
					return 0, "", nil
				}})
			if took := time.Since(began); err != nil || took > within {
				t.Errorf("%s took %s (%v), want %s", name, took, err, within)
			}
		}
		for i := range 30 {
			all.Go(func() { change(fmt.Sprint("create ", i), budget.Write, 40*time.Second, 2*time.Minute) })
		}
		time.Sleep(time.Second)
		change("detach", budget.Detach, time.Second, time.Second)
		for i := range 3 {
			all.Go(func() { change(fmt.Sprint("attach ", i), budget.Attach, time.Second, time.Second) })
		}
		all.Wait()
		if sent.most != 15 {
			t.Errorf("%d changes at once, want 15", sent.most)
		}
	})
}
