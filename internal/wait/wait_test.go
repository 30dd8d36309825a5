package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errBusy  = errors.New("busy")
	errOther = errors.New("other")
)

func busy(err error) bool { return errors.Is(err, errBusy) }

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if err := Sleep(ctx, 40*time.Second); err != nil || time.Since(begin) != 40*time.Second {
			t.Errorf("Sleep = %v after %v, want nil after 40 s", err, time.Since(begin))
		}
		if err := Sleep(ctx, 40*time.Second); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("Sleep = %v after %v, want the context's end after a minute", err, time.Since(begin))
		}
		if err := Sleep(t.Context(), -time.Second); err != nil {
			t.Errorf("Sleep of a time that has passed = %v", err)
		}
	})
}

func TestRetry(t *testing.T) {
	growing := Backoff{Tries: 6, First: 2 * time.Second, Max: 5 * time.Second} // 2, 3, 4.5, 5, 5
	for name, tc := range map[string]struct {
		backoff Backoff
		answers []error // the last one is repeated
		within  time.Duration
		want    error
		calls   int
		took    time.Duration
	}{
		"success at once":                      {growing, []error{nil}, time.Hour, nil, 1, 0},
		"another error is final":               {growing, []error{errBusy, errOther}, time.Hour, errOther, 2, 2 * time.Second},
		"pauses grow up to the largest":        {growing, []error{errBusy}, time.Hour, errBusy, 6, 19500 * time.Millisecond},
		"no pause that the context would end":  {growing, []error{errBusy}, 5 * time.Second, errBusy, 2, 2 * time.Second},
		"equal pauses":                         {Every(time.Second, 3), []error{errBusy}, time.Hour, errBusy, 3, 2 * time.Second},
		"without a limit until it is answered": {Every(time.Second, 0), []error{errBusy, errBusy, errBusy, nil}, time.Hour, nil, 4, 3 * time.Second},
		"without a limit until the deadline":   {Every(time.Second, 0), []error{errBusy}, 10500 * time.Millisecond, errBusy, 11, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.within)
				defer cancel()
				calls, begin := 0, time.Now()
				err := tc.backoff.Retry(ctx, busy, func() error {
					calls++
					return tc.answers[min(calls, len(tc.answers))-1]
				})
				if !errors.Is(err, tc.want) || calls != tc.calls || time.Since(begin) != tc.took {
					t.Errorf("Retry = %v with %d calls in %v, want %v with %d in %v", err, calls, time.Since(begin), tc.want, tc.calls, tc.took)
				}
			})
		})
	}
}

func TestRetryEndsWhenItsContextIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(90*time.Second, cancel)
		begin := time.Now()
		err := Every(time.Minute, 0).Retry(ctx, busy, func() error { return errBusy })
		if !busy(err) || time.Since(begin) != 90*time.Second {
			t.Errorf("Retry = %v after %v, want the last error after 90 s", err, time.Since(begin))
		}
	})
}

func TestChanceTakesUpToAThirdOfAPause(t *testing.T) {
	for chance, want := range map[float64]time.Duration{0: 3 * time.Second, .5: 2500 * time.Millisecond} {
		b := Backoff{First: 2 * time.Second, Max: time.Minute, Rand: func() float64 { return chance }}
		if got := b.Pause(2); got != want {
			t.Errorf("pause with a chance of %v = %v, want %v", chance, got, want)
		}
	}
}
