package ops_test

import (
	"context"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestRepeatEndsWithWhatARepeatDoesNotHelp(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []error // the last one is that of all later calls
		ends    error
		calls   int
	}{
		"at once":                {[]error{nil}, nil, 1},
		"after three failures":   {[]error{fault.Unavailable, fault.Uncertain, fault.Busy, nil}, nil, 4},
		"with what is no outage": {[]error{fault.Unavailable, fault.Denied}, fault.Denied, 2},
		"with the last failure":  {[]error{fault.Busy, fault.Unavailable}, fault.Unavailable, 5},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, ops.Config{}, func(t *testing.T, r *ops.Runner) {
				calls := 0
				err := r.Repeat(t.Context(), func() error {
					calls++
					return tc.answers[min(calls, len(tc.answers))-1]
				})
				if err != tc.ends || calls != tc.calls { //nolint:errorlint // it is not wrapped
					t.Errorf("Repeat = %v after %d calls, want %v after %d", err, calls, tc.ends, tc.calls)
				}
			})
		})
	}
}

func TestRepeatEndsWithItsCaller(t *testing.T) {
	simulated(t, ops.Config{}, func(t *testing.T, r *ops.Runner) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := 0
		err := r.Repeat(ctx, func() error { calls++; return fault.Unavailable })
		if fault.Of(err) != fault.Unavailable || calls > 3 {
			t.Errorf("Repeat = %v after %d calls", err, calls)
		}
	})
}
