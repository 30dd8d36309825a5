package yandex_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// A1: a cloud that shows a change when it has taken it on, and then takes it back, is not believed: the end of the
// operation counts.
func TestAChangeThatShowsBeforeItsEndIsNotBelieved(t *testing.T) {
	for name, rules := range map[string]emulator.Rules{"at once": {ChangeOnAccept: true}, "halfway": {ChangeHalfway: true}} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				rules.ParallelOperations = true
				folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(2 * time.Second)), Rules: rules})
				c := open(t, folder)
				var ids []cloud.VolumeID
				for n := range 4 {
					ids = append(ids, volume(t, c, fmt.Sprintf("v%d", n)).ID)
				}
				folder.Arm(emulator.Fault{Route: attachDisk, Times: 2, Effect: faults.Effect{Errored: true, ID: "INTERNAL"}})
				var mu sync.Mutex
				failed := 0
				var all sync.WaitGroup
				for n, id := range ids {
					machine := []string{machine1, machine2}[n%2]
					all.Go(func() {
						_, err := c.Attach(t.Context(), id, cloud.NodeID(machine))
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							failed++
							want(t, err, fault.Unavailable)
							return
						}
						at(t, folder, id, machine)
						for _, op := range folder.Running() {
							if op.Disk == string(id) {
								t.Errorf("Attach answered while %+v", op)
							}
						}
					})
				}
				all.Wait()
				if failed != 2 {
					t.Errorf("%d attaches failed, want the two that the cloud gave up", failed)
				}
			})
		})
	}
}

// A12: however slow each read is, all calls end well, and with no more requests than of a fast API.
func TestASlowAPIDelaysAndPreventsNothing(t *testing.T) {
	fast := 0
	for _, delay := range []time.Duration{0, time.Second, 2500 * time.Millisecond, 10 * time.Second} {
		simulated(t, func(t *testing.T) {
			folder := start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(2 * time.Second))})
			for _, method := range []string{"Get", "List", "ListOperations"} {
				folder.Arm(emulator.Fault{Method: method, Effect: faults.Effect{Delay: clock.Fixed(delay)}})
			}
			c := open(t, folder, func(cfg *yandex.Config) { cfg.Tick, cfg.Busy = 0, wait.Backoff{} })
			vol := volume(t, c, "a")
			attach(t, c, vol.ID, node1)
			must(t, c.Detach(t.Context(), vol.ID, node1))
			must(t, c.Detach(t.Context(), vol.ID, node1)) // as it is repeated
			must(t, c.DeleteVolume(t.Context(), vol.ID))
			stats := folder.Stats()
			if fast == 0 {
				fast = stats.Reads + stats.Writes
			}
			if n := stats.Reads + stats.Writes; n > fast {
				t.Errorf("with reads of %s: %d requests, a fast API has %d", delay, n, fast)
			}
		})
	}
}

// A12: a read of an operation that hangs delays the end of this one alone, and no attach that begins with it or later.
func TestAReadThatHangsHoldsBackItsOwnOperationAlone(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Durations{Attach: clock.Fixed(2 * time.Second)}})
		c := open(t, folder, func(cfg *yandex.Config) { cfg.Tick, cfg.Rand = 0, func() float64 { return 0 } })
		ids := make([]cloud.VolumeID, 10)
		for n := range ids {
			ids[n] = volume(t, c, fmt.Sprint("v", n)).ID
		}
		folder.Arm(emulator.Fault{Route: "OperationService/Get", Times: 1, Effect: faults.Effect{Delay: clock.Fixed(ops.AnswerTimeout)}})
		var slow atomic.Int32
		var all sync.WaitGroup
		for n, id := range ids {
			machine := cloud.NodeID(folder.AddInstance(emulator.Instance{}))
			all.Go(func() {
				time.Sleep(time.Duration(n/2) * time.Second)
				began := time.Now()
				attach(t, c, id, machine)
				if time.Since(began) > 10*time.Second {
					slow.Add(1)
				}
			})
		}
		all.Wait()
		if n := slow.Load(); n != 1 {
			t.Errorf("%d of the attaches were slow, want the one whose operation's read hangs", n)
		}
	})
}

// P1: the cloud keeps operations for two weeks, each with the whole instance. A refusal is explained by the newest ones, before
// and after the read of the disk.
func TestALongHistoryCostsOnePage(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{})
		c := open(t, folder)
		id := volume(t, c, "a").ID
		for range 100 {
			attach(t, c, id, node1)
			must(t, c.Detach(t.Context(), id, node1))
			time.Sleep(time.Hour)
		}
		folder.ResetStats()
		must(t, c.Detach(t.Context(), id, node1))
		routes := folder.Stats().Routes
		if lists := routes["DiskService/ListOperations"] + routes["InstanceService/ListOperations"]; lists != 4 {
			t.Errorf("%d pages of the disk's and the instance's operations were read, want 4", lists)
		}
	})
}

// A7: an answer that is too large for this program is its own matter and no quota of the cloud.
func TestAnAnswerThatIsTooLargeIsNoQuota(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{})
		c := open(t, folder)
		id := volume(t, c, "a").ID
		words := "grpc: received message larger than max (16777217 vs. 16777216)"
		folder.Arm(emulator.Fault{Route: attachDisk, Times: 1, Effect: faults.Effect{Status: int(codes.FailedPrecondition), Message: "busy"}})
		folder.Arm(emulator.Fault{Method: "ListOperations", Effect: faults.Effect{Status: int(codes.ResourceExhausted), Message: words}})
		_, err := c.Attach(t.Context(), id, node1)
		want(t, err, fault.Unavailable, "larger than max")
	})
}

// The idempotency key is of creates only: a detach after a second attach must not be answered with the first detach.
func TestOnlyCreatesHaveKeys(t *testing.T) {
	folder := start(t, emulator.Options{})
	c := open(t, folder, func(cfg *yandex.Config) {
		cfg.Around = func(ctx context.Context, method string, ask, answer any, conn *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			sent, _ := metadata.FromOutgoingContext(ctx)
			if has := len(sent.Get("idempotency-key")) > 0; has != strings.HasSuffix(method, "/Create") {
				t.Errorf("%s has a key: %v", method, has)
			}
			return send(ctx, method, ask, answer, conn, opts...)
		}
	})
	id := attached(t, c)
	must(t, c.Detach(t.Context(), id, node1))
	must(t, c.DeleteVolume(t.Context(), id))
}
