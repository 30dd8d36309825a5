package ops_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// reading is a cloud without lists, whose operations end at a time. Until then each read fails.
type reading struct {
	err  error
	ends time.Time
}

func (r *reading) Running(context.Context, string) ([]ops.Operation, error) { return nil, nil }

func (r *reading) Outcome(context.Context, ops.Operation) (ops.Outcome, error) {
	if time.Now().Before(r.ends) {
		return ops.Outcome{}, r.err
	}
	return ops.Outcome{Done: true}, nil
}

// grow is the Op that starts an operation.
func grow(object string) ops.Op[int] {
	return ops.Op[int]{
		Name: "grow " + object, Kind: "grow", Object: object, Priority: budget.Write,
		Submit: func(context.Context, *ops.Write) (int, string, error) { return 0, object, nil },
	}
}

// outage is a cloud whose lists fail, and for a time each other read too.
type outage struct {
	reading

	lists, outcomes atomic.Int32
}

func (o *outage) List(context.Context, []ops.Operation, map[string]ops.Outcome) error {
	o.lists.Add(1)
	return errors.New("no list")
}

func (o *outage) Outcome(ctx context.Context, op ops.Operation) (ops.Outcome, error) {
	o.outcomes.Add(1)
	return o.reading.Outcome(ctx, op)
}

// P1: operations whose list fails are read one by one. While no read succeeds, that is one read and not one for each operation.
func TestAListOfOperationsThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &outage{reading: reading{err: fault.Unavailable, ends: time.Now().Add(time.Minute)}}
		r := ops.New(t.Context(), ops.Config{Tracker: cloud})
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { succeeds(t, r, grow(fmt.Sprint("volume ", i))) })
		}
		time.Sleep(50 * time.Second)
		if lists, outcomes := cloud.lists.Load(), cloud.outcomes.Load(); lists == 0 || outcomes > lists+1 {
			t.Errorf("%d operations were read and %d lists, want one for each list", outcomes, lists)
		}
		all.Wait()
	})
}

// A12: an error of a read that may pass is a delay. What the cloud refuses, or does not have some seconds after the start, is never shown.
func TestAnErrorOfAReadOfAnOperation(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		takes time.Duration
		want  error
		after time.Duration // at least, and less than half a minute later
	}{
		"an outage":                 {fault.Unavailable, time.Minute, nil, time.Minute},
		"a cloud that is busy":      {fault.Busy, time.Minute, nil, time.Minute},
		"an error without a kind":   {errors.New("odd"), time.Minute, nil, time.Minute},
		"one that shows later":      {fault.NotFound, 5 * time.Second, nil, 5 * time.Second},
		"one that never shows":      {fault.NotFound, time.Hour, fault.Uncertain, 10 * time.Second},
		"a right that is not there": {fault.Denied, time.Hour, fault.Uncertain, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r := ops.New(t.Context(), ops.Config{Tracker: &reading{err: tc.err, ends: began.Add(tc.takes)}})
				_, err := ops.Run(t.Context(), r, grow("volume 1"))
				if took := time.Since(began); fault.Of(err) != fault.Of(tc.want) || took < tc.after || took > tc.after+30*time.Second {
					t.Errorf("it ends after %s with %v, want %v after %s", took, err, tc.want, tc.after)
				}
			})
		})
	}
}

// A12: a read of operations takes as long as an answer may, and is believed: an API that slow delays the end of an
// operation, and does not hide it.
func TestASlowReadShowsTheEndOfAnOperation(t *testing.T) {
	s := newSite(time.Second)
	s.read = ops.AnswerTimeout - time.Second
	simulated(t, ops.Config{Tracker: s}, func(t *testing.T, r *ops.Runner) {
		began := time.Now()
		if got, err := ops.Run(t.Context(), r, s.set(1)); err != nil || got != 1 {
			t.Errorf("Run = %d, %v, want that the change is seen to end", got, err)
		}
		if took := time.Since(began); took > 2*ops.AnswerTimeout {
			t.Errorf("it took %v", took)
		}
	})
}
