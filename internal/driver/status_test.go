package driver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestToStatus(t *testing.T) {
	foreign := status.Error(codes.PermissionDenied, "the cloud's own words")
	tests := map[string]struct {
		err  error
		want codes.Code
	}{
		"no error":                             {nil, codes.OK},
		"an error without a kind":              {errors.New("x"), codes.Internal},
		"a cancelled call":                     {fmt.Errorf("x: %w", context.Canceled), codes.Canceled},
		"a call out of time":                   {fmt.Errorf("x: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		"a kind outranks the context":          {fmt.Errorf("x: %w: %w", fault.Uncertain, context.Canceled), codes.Unavailable},
		"a bare status passes":                 {status.Error(codes.Unimplemented, "stub"), codes.Unimplemented},
		"a cloud's status does not":            {fmt.Errorf("attach: %w", foreign), codes.Internal},
		"a cloud's status below a kind":        {fmt.Errorf("attach: %w: %w", fault.Busy, foreign), codes.Aborted},
		"uncertain outranks what precedes it":  {fmt.Errorf("x: %w: %w", fault.NotFound, fault.Uncertain), codes.Unavailable},
		string(fault.InvalidArgument):          {fault.InvalidArgument, codes.InvalidArgument},
		string(fault.NotFound):                 {fault.NotFound, codes.NotFound},
		string(fault.Conflict):                 {fault.Conflict, codes.AlreadyExists},
		string(fault.Exhausted):                {fault.Exhausted, codes.ResourceExhausted},
		string(fault.Precondition):             {fault.Precondition, codes.FailedPrecondition},
		string(fault.Busy):                     {fault.Busy, codes.Aborted},
		string(fault.OutOfRange):               {fault.OutOfRange, codes.OutOfRange},
		string(fault.Denied):                   {fault.Denied, codes.PermissionDenied},
		string(fault.StalePage):                {fault.StalePage, codes.Aborted},
		string(fault.Unsupported):              {fault.Unsupported, codes.Unimplemented},
		string(fault.Unavailable):              {fault.Unavailable, codes.Unavailable},
		string(fault.Uncertain) + " by itself": {fault.Uncertain, codes.Unavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := status.Convert(toStatus(tc.err))
			if got.Code() != tc.want {
				t.Errorf("toStatus(%v) has code %v, want %v", tc.err, got.Code(), tc.want)
			}
			if _, bare := tc.err.(interface{ GRPCStatus() *status.Status }); tc.err != nil && !bare && got.Message() != fault.Text(tc.err) {
				t.Errorf("toStatus(%v) says %q", tc.err, got.Message())
			}
		})
	}
}

// TestFinal: after an answer that passes the kubelet unstages, so what the call left must stay where a repeat finds it.
func TestFinal(t *testing.T) {
	passing := []error{context.Canceled, context.DeadlineExceeded, fault.Unavailable, fault.Uncertain, fault.Exhausted, fault.Busy}
	for _, err := range passing {
		if Final(fmt.Errorf("stage: %w", err)) {
			t.Errorf("%v is final, want that it passes", err)
		}
	}
	for _, err := range []error{fault.Precondition, fault.Conflict, fault.InvalidArgument, fault.NotFound, errors.New("no kind")} {
		if !Final(fmt.Errorf("stage: %w", err)) {
			t.Errorf("%v passes, want it final", err)
		}
	}
}
