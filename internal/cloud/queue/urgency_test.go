package queue_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
)

type urgencyKey struct{}

// Where all places are taken the most urgent change gets the next one, and the oldest of several; changes of one
// machine keep their order all the same, and one that has waited for two minutes goes before everything.
func TestTheMostUrgentChangeGetsTheNextPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Config{Capacity: 1, Urgency: func(ctx context.Context) int {
			n, _ := ctx.Value(urgencyKey{}).(int)
			return n
		}})
		defer q.Close()
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		ask := func(name, machine string, urgency int, takes time.Duration) {
			all.Go(func() {
				ctx := context.WithValue(t.Context(), urgencyKey{}, urgency)
				err := q.Do(ctx, queue.Change{Key: machine, Send: func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, name)
					return nil
				}, Wait: func(context.Context) error {
					<-time.After(takes)
					return nil
				}})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
			synctest.Wait()
		}
		const short = time.Second
		ask("running", "", 5, short)
		ask("create 1", "", 5, short)
		ask("attach to a", "a", 3, short)
		ask("detach from a", "a", 1, short) // behind the attach to the same machine
		ask("detach from b", "b", 1, short)
		ask("create 2", "", 5, 3*time.Minute)
		all.Wait()
		want := []string{"running", "detach from b", "attach to a", "detach from a", "create 1", "create 2"}
		if !slices.Equal(order, want) {
			t.Errorf("the order is %q, want %q", order, want)
		}
		order = nil
		ask("running", "", 5, 3*time.Minute)
		ask("starving", "", 5, short)
		<-time.After(150 * time.Second)
		ask("detach", "a", 1, short)
		all.Wait()
		if want := []string{"running", "starving", "detach"}; !slices.Equal(order, want) {
			t.Errorf("the order is %q, want %q", order, want)
		}
	})
}
