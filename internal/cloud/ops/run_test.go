package ops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

var wantKind = cloudtest.Want

func TestAChangeIsSentOnceAndFollowedToItsEnd(t *testing.T) {
	s := newSite(4 * time.Second)
	simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
		began := time.Now()
		succeeds(t, r, s.set(1))
		if sent, reads := s.count(); sent != 1 || reads > 9 || time.Since(began) > 5200*time.Millisecond {
			t.Errorf("%d requests and %d reads in %s", sent, reads, time.Since(began))
		}
		succeeds(t, r, s.set(1)) // refused, and as wanted
	})
}

// The next operation of a kind is read when the one before it had ended, and soon after its start if that took minutes.
func TestThePastPlacesTheFirstRead(t *testing.T) {
	for before, want := range map[time.Duration]struct {
		reads int
		took  time.Duration
	}{2 * time.Second: {1, 2200 * time.Millisecond}, 4 * time.Minute: {1, 10 * time.Second}} {
		s := newSite(before)
		s.says = true
		simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
			succeeds(t, r, s.set(1))
			s.takes = 2 * time.Second
			_, earlier := s.count()
			began := time.Now()
			succeeds(t, r, s.set(2))
			if _, reads := s.count(); reads-earlier > want.reads || time.Since(began) > want.took {
				t.Errorf("after one of %s, an operation of 2 s is seen after %s and %d reads", before, time.Since(began), reads-earlier)
			}
		})
	}
}

// A10: a change whose caller has gone continues, and the next call joins it.
func TestAChangeGoesOnWithoutItsCallerAndTheNextCallJoinsIt(t *testing.T) {
	s := newSite(10 * time.Second)
	simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := ops.Run(ctx, r, s.set(1))
		wantKind(t, err, fault.Uncertain)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not match the context's error", err)
		}
		succeeds(t, r, s.set(1))
		if sent, _ := s.count(); sent != 1 {
			t.Errorf("%d requests were sent, want the first only", sent)
		}
	})
}

func TestAQueuedChangeIsDroppedWithItsCaller(t *testing.T) {
	s := newSite(10 * time.Second)
	simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
		first := make(chan error, 1)
		go func() { _, err := ops.Run(t.Context(), r, s.set(1)); first <- err }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := ops.Run(ctx, r, s.set(2))
		wantKind(t, err, fault.Unavailable)
		if err := <-first; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if sent, _ := s.count(); sent != 1 {
			t.Errorf("%d requests were sent, want 1", sent)
		}
	})
}

func TestAnOperationThatFailsIsUnavailableAndOneThatIsHiddenIsUncertain(t *testing.T) {
	s := newSite(time.Second)
	simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
		s.fails = true
		_, err := ops.Run(t.Context(), r, s.set(1))
		wantKind(t, err, fault.Unavailable)
		s.fails, s.hidden = false, true
		_, err = ops.Run(t.Context(), r, s.set(1))
		wantKind(t, err, fault.Uncertain)
	})
}

// A1: what is under way, begun by another controller, ends before a refusal is decided.
func TestARefusalIsDecidedWhenNothingIsUnderWay(t *testing.T) {
	s := newSite(10 * time.Second)
	simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
		other := ops.New(t.Context(), ops.Config{Tracker: s})
		done := make(chan error, 1)
		go func() { _, err := ops.Run(t.Context(), other, s.set(1)); done <- err }()
		synctest.Wait()
		succeeds(t, r, s.set(1))
		if err := <-done; err != nil {
			t.Error(err)
		}
		if sent, _ := s.count(); sent != 2 {
			t.Errorf("%d requests were sent, want 2", sent)
		}
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A12: an API whose requests do not say which state they are meant for: however slow its reads are, the change is sent,
// right after one of them.
func TestALeaseCountsFromTheArrivalOfTheState(t *testing.T) {
	for _, read := range []time.Duration{time.Second, 2500 * time.Millisecond, 10 * time.Second} {
		t.Run(read.String(), func(t *testing.T) {
			s := newSite(2 * time.Second)
			s.read = read
			simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
				op := s.set(1)
				op.Lease = 2 * time.Second
				op.Decide = func(value int, _ bool, _ error) error {
					if value == 1 {
						return nil
					}
					return fault.Busy
				}
				succeeds(t, r, op)
				if sent, _ := s.count(); sent != 1 {
					t.Errorf("%d requests were sent, want 1", sent)
				}
			})
		})
	}
}

// A machine that is busy for minutes costs few requests, and the change follows soon after.
func TestAttemptsBecomeRarer(t *testing.T) {
	const busy = 4 * time.Minute
	s := newSite(0)
	simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
		op, began, sent := s.set(1), time.Now(), 0
		op.State = nil
		op.Submit = func(context.Context, *ops.Write) (int, string, error) {
			if sent++; time.Since(began) < busy {
				return 0, "", fmt.Errorf("%w: %w", fault.Busy, refusal{})
			}
			return 1, "", nil
		}
		succeeds(t, r, op)
		if took := time.Since(began); sent > 45 || took > busy*5/4 {
			t.Errorf("%d requests were sent in %v", sent, took)
		}
	})
}

// A 429 delays a read as it does a change: what waits for the API's budget waits as long as its callers. It delays no other read.
func TestAReadMayWaitForMinutes(t *testing.T) {
	simulated(t, ops.Config{Tracker: newSite(time.Second)}, func(t *testing.T, r *ops.Runner) {
		reads := ops.NewReads(r, func(ctx context.Context, minutes int) (int, error) {
			return minutes, wait.Sleep(ctx, time.Duration(minutes)*time.Minute)
		}, nil)
		var all sync.WaitGroup
		for _, minutes := range []int{0, 3} {
			all.Go(func() {
				began := time.Now()
				if got, err := reads.Get(t.Context(), minutes); err != nil || got != minutes || int(time.Since(began).Minutes()) != minutes {
					t.Errorf("Get(%d) = %d, %v, after %s", minutes, got, err, time.Since(began))
				}
			})
		}
		all.Wait()
	})
}

// C6: a panic of an SDK ends no program, wherever it comes from.
func TestPanicsOfABackendAreSurvived(t *testing.T) {
	s := newSite(time.Second)
	simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
		op := s.set(1)
		op.Submit = func(context.Context, *ops.Write) (int, string, error) { panic("an odd answer") }
		_, err := ops.Run(t.Context(), r, op)
		wantKind(t, err, fault.Uncertain)
		op.Submit = func(context.Context, *ops.Write) (int, string, error) {
			panic(struct{ header string }{"Bearer canary"})
		}
		_, err = ops.Run(t.Context(), r, op)
		if wantKind(t, err, fault.Uncertain); strings.Contains(err.Error(), "canary") {
			t.Errorf("%v repeats a value that may be the request", err)
		}
		reads := ops.NewReads(r, func(context.Context, int) (int, error) { panic("an odd answer") }, nil)
		if _, err := reads.Get(t.Context(), 1); err == nil {
			t.Error("a read that panicked has an answer")
		}
		succeeds(t, r, s.set(1))
	})
}

// P1: calls that wait are bounded, and detaches have room beyond the others.
func TestTooManyCallsAreRefusedAtOnce(t *testing.T) {
	s := newSite(time.Hour)
	simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() { _, _ = ops.Run(ctx, r, s.set(i+1)) })
		}
		synctest.Wait()
		_, err := ops.Run(t.Context(), r, s.set(2000))
		wantKind(t, err, fault.Unavailable)
		detach := s.set(2001)
		detach.Priority = budget.Detach
		soon, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()
		if _, err := ops.Run(soon, r, detach); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a detach was not let in: %v", err)
		}
		cancel()
		all.Wait()
	})
}

// All that ask within a moment share one request, and each read begins after the question.
func TestQuestionsOfOneMomentShareARead(t *testing.T) {
	s := newSite(time.Second)
	simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
		ones, manys := 0, 0
		reads := ops.NewReads(r, func(_ context.Context, key int) (int, error) {
			ones++
			return key, nil
		}, func(context.Context) (map[int]int, error) {
			manys++
			return map[int]int{1: 1, 2: 2}, nil
		})
		var all sync.WaitGroup
		for _, key := range []int{1, 2, 3, 1} {
			all.Go(func() {
				if got, err := reads.Get(t.Context(), key); err != nil || got != key {
					t.Errorf("Get(%d) = %d, %v", key, got, err)
				}
			})
		}
		all.Wait()
		if ones != 1 || manys != 1 {
			t.Errorf("%d reads of one and %d of many, want 1 and 1", ones, manys)
		}
	})
}
