package yandex

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/quota"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Each row is what the cloud says, and its kind as the answer to a read, to a write, and at the end of an
// operation. The words are the cloud's own where facts have them.
func TestKinds(t *testing.T) {
	const active = "The limit on maximum number of active operations has exceeded."
	const disks = "The limit on maximum number of attached disks and filesystems has exceeded."
	tests := map[string]struct {
		code             codes.Code
		words            string
		read, write, end fault.Kind
	}{
		"a request that makes no sense":  {codes.InvalidArgument, "", fault.InvalidArgument, fault.InvalidArgument, fault.InvalidArgument},
		"nothing there":                  {codes.NotFound, "", fault.NotFound, fault.NotFound, fault.NotFound},
		"the name is taken":              {codes.AlreadyExists, "", fault.Conflict, fault.Conflict, fault.Conflict},
		"no right":                       {codes.PermissionDenied, "", fault.Denied, fault.Denied, fault.Denied},
		"no token":                       {codes.Unauthenticated, "", fault.Denied, fault.Denied, fault.Denied},
		"15 operations are running":      {codes.ResourceExhausted, active, fault.Busy, fault.Busy, fault.Busy},
		"the machine is full":            {codes.ResourceExhausted, disks, fault.Exhausted, fault.Exhausted, fault.Exhausted},
		"a quota":                        {codes.ResourceExhausted, "Quota limit compute.disks.count exceeded", fault.Exhausted, fault.Exhausted, fault.Exhausted},
		"the API's budget":               {codes.ResourceExhausted, "Rate limit exceeded", fault.Unavailable, fault.Unavailable, fault.Exhausted},
		"a state":                        {codes.FailedPrecondition, "", fault.Precondition, fault.Precondition, fault.Precondition},
		"another change":                 {codes.Aborted, "", fault.Busy, fault.Busy, fault.Busy},
		"a size":                         {codes.OutOfRange, "", fault.OutOfRange, fault.OutOfRange, fault.OutOfRange},
		"no such method":                 {codes.Unimplemented, "", fault.Unsupported, fault.Unsupported, fault.Unsupported},
		"the server is away":             {codes.Unavailable, "", fault.Unavailable, fault.Uncertain, fault.Unavailable},
		"the server is broken":           {codes.Internal, "", fault.Unavailable, fault.Uncertain, fault.Unavailable},
		"the server has no words for it": {codes.Unknown, "", fault.Unavailable, fault.Uncertain, fault.Unavailable},
		"the server gave up":             {codes.DeadlineExceeded, "", fault.Unavailable, fault.Uncertain, fault.Unavailable},
		"the server was told to stop":    {codes.Canceled, "", fault.Unavailable, fault.Uncertain, fault.Unavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			said := newAnswer(status.New(tc.code, tc.words))
			end := failureOf(&operation.Operation{Id: "op", Done: true, Result: &operation.Operation_Error{Error: status.New(tc.code, tc.words).Proto()}})
			for _, got := range []struct {
				what string
				err  error
				want fault.Kind
			}{{"a read", readError("read", said), tc.read}, {"a write", writeError("write", said), tc.write}, {"an operation", end, tc.end}} {
				if fault.Of(got.err) != got.want || !strings.Contains(got.err.Error(), tc.words) {
					t.Errorf("%s = %v, want the kind %q and the cloud's words", got.what, got.err, got.want)
				}
			}
			if !hasFailed(end) || hasFailed(said) || fault.Of(unseen(end)) != tc.end {
				t.Errorf("an operation that was seen to fail is %v", unseen(end))
			}
		})
	}
}

// An operation that ends with an error keeps its status, also one that had ended when it was answered: the
// SDK's own waiting loses it.
func TestAnOperationWithoutAnErrorHasNotFailed(t *testing.T) {
	if err := failureOf(&operation.Operation{Id: "op", Done: true}); err != nil {
		t.Errorf("failureOf = %v", err)
	}
}

func TestAQuotaIsNamed(t *testing.T) {
	said, err := status.New(codes.ResourceExhausted, "quota").WithDetails(&quota.QuotaFailure{Violations: []*quota.QuotaFailure_Violation{
		{Metric: &quota.QuotaMetric{Name: "compute.disks.count", Limit: 32, Usage: 32}, Required: 33},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := newAnswer(said).Error(); !strings.Contains(got, "compute.disks.count: limit 32, in use 32, 33 would be needed") {
		t.Errorf("the answer reads %q", got)
	}
}

// What is known of a write without an answer is known to the layer that sent it.
func TestWritesWithoutAnAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		kind fault.Kind
	}{
		"never sent":         {fmt.Errorf("%w: %w", fault.Unavailable, context.Canceled), fault.Unavailable},
		"sent, no answer":    {context.DeadlineExceeded, fault.Uncertain},
		"sent and nobody's":  {fmt.Errorf("%w: %w", fault.Uncertain, context.Canceled), fault.Uncertain},
		"nobody knows":       {errors.New("broken"), fault.Uncertain},
		"no credentials":     {fmt.Errorf("%w: no", fault.Denied), fault.Denied},
		"an unseen end":      {unseen(fmt.Errorf("%w: look", fault.Denied)), fault.Uncertain},
		"nothing went wrong": {nil, fault.None},
	} {
		t.Run(name, func(t *testing.T) {
			if err := writeError("write", tc.err); fault.Of(err) != tc.kind {
				t.Errorf("writeError = %v, want the kind %q", err, tc.kind)
			}
		})
	}
}
