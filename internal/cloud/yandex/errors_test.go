package yandex

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/quota"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The words are the cloud's own where facts have them.
const (
	wordsActive = "The limit on maximum number of active operations has exceeded."
	wordsSlots  = "The limit on maximum number of attached disks and filesystems has exceeded."
	// wordsRate are those of another service, for the number of requests in a second; langchain-ai/langchain#19773.
	wordsRate = "ai.embeddingsTextEmbeddingRequestsPerSecond.rate rate quota limit exceed: allowed 10 requests"
)

// Each row is what the cloud says, and its kind as the answer to a read, to a write, and at the end of an
// operation, which has changed nothing.
func TestKinds(t *testing.T) {
	tests := map[string]struct {
		code             codes.Code
		words            string
		read, write, end fault.Kind
	}{
		"a request that makes no sense":  {codes.InvalidArgument, "", fault.InvalidArgument, fault.InvalidArgument, fault.Unavailable},
		"nothing there":                  {codes.NotFound, "", fault.NotFound, fault.NotFound, fault.Unavailable},
		"the name is taken":              {codes.AlreadyExists, "", fault.Conflict, fault.Conflict, fault.Unavailable},
		"no right":                       {codes.PermissionDenied, "", fault.Denied, fault.Denied, fault.Unavailable},
		"no token":                       {codes.Unauthenticated, "", fault.Denied, fault.Denied, fault.Unavailable},
		"15 operations are running":      {codes.ResourceExhausted, wordsActive, fault.Unavailable, fault.Busy, fault.Unavailable},
		"the instance is full":           {codes.ResourceExhausted, wordsSlots, fault.Unavailable, fault.Exhausted, fault.Exhausted},
		"a quota":                        {codes.ResourceExhausted, "Quota limit compute.disks.count exceeded", fault.Unavailable, fault.Exhausted, fault.Exhausted},
		"the API's budget":               {codes.ResourceExhausted, "Rate limit exceeded", fault.Unavailable, fault.Unavailable, fault.Unavailable},
		"a quota of requests":            {codes.ResourceExhausted, wordsRate, fault.Unavailable, fault.Unavailable, fault.Unavailable},
		"a state":                        {codes.FailedPrecondition, "", fault.Precondition, fault.Precondition, fault.Unavailable},
		"another change":                 {codes.Aborted, "", fault.Busy, fault.Busy, fault.Unavailable},
		"a size":                         {codes.OutOfRange, "", fault.OutOfRange, fault.OutOfRange, fault.Unavailable},
		"no such method":                 {codes.Unimplemented, "", fault.Unsupported, fault.Unsupported, fault.Unavailable},
		"the server is away":             {codes.Unavailable, "", fault.Unavailable, fault.Uncertain, fault.Unavailable},
		"the server is broken":           {codes.Internal, "", fault.Unavailable, fault.Uncertain, fault.Unavailable},
		"the server has no words for it": {codes.Unknown, "", fault.Unavailable, fault.Uncertain, fault.Unavailable},
		"the server gave up":             {codes.DeadlineExceeded, "", fault.Unavailable, fault.Uncertain, fault.Unavailable},
		"the server was told to stop":    {codes.Canceled, "", fault.Unavailable, fault.Uncertain, fault.Unavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			said := status.New(tc.code, tc.words)
			write := request{steering: steering{write: ops.NewWrite(t.Context(), budget.Write)}}
			for what, got := range map[string]struct {
				err  error
				want fault.Kind
			}{
				"a read":       {request{}.explained(newAnswer(said, nil, "")), tc.read},
				"a write":      {write.explained(newAnswer(said, nil, "")), tc.write},
				"an operation": {failureOf(&operation.Operation{Id: "op", Done: true, Result: &operation.Operation_Error{Error: said.Proto()}}), tc.end},
			} {
				if fault.Of(got.err) != got.want || !strings.Contains(got.err.Error(), tc.words) || failedWith(got.err) != (what == "an operation") {
					t.Errorf("%s = %v, want the kind %q and the cloud's words", what, got.err, got.want)
				}
			}
		})
	}
	if err := failureOf(&operation.Operation{Id: "op", Done: true}); err != nil {
		t.Errorf("an operation that ended well = %v", err)
	}
}

func TestAQuotaIsNamed(t *testing.T) {
	said, err := status.New(codes.ResourceExhausted, "quota").WithDetails(&quota.QuotaFailure{Violations: []*quota.QuotaFailure_Violation{
		{Metric: &quota.QuotaMetric{Name: "compute.disks.count", Limit: 32, Usage: 32}, Required: 33},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := newAnswer(said, nil, "").Error(); !strings.Contains(got, "compute.disks.count: limit 32, in use 32, 33 would be needed") {
		t.Errorf("the answer reads %q", got)
	}
}

// P3: words that repeat the request, with the token in it, reach no error.
func TestTheTokenLeavesInNoAnswer(t *testing.T) {
	for _, words := range []string{"upstream got authorization: t1.canary", "Bearer t2.canary is not known here"} {
		a := newAnswer(status.New(codes.Internal, words), metadata.Pairs("x-request-id", words), "t1.canary")
		if text := a.Error(); strings.Contains(text, "canary") {
			t.Errorf("the error has the token: %s", text)
		}
	}
}

// What the cloud says steers no terminal.
func TestTheWordsOfTheCloudArePrintable(t *testing.T) {
	if a := newAnswer(status.New(codes.Internal, "no\x1b]0;x\a"), metadata.Pairs("x-request-id", "a\x1b[2J"), ""); a.words != "no ]0;x" || a.requestID != "a [2J" {
		t.Errorf("the answer is %+v", a)
	}
}

// What a cloud may say of the next read of an operation is bounded.
func TestIntervalOf(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "2": 2 * time.Second, "0.5": time.Second / 2, "-1": 0, "x": 0, "1e9": maxInterval} {
		if got := intervalOf(metadata.Pairs("x-operation-poll-interval", text)); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	if got := intervalOf(nil); got != 0 {
		t.Errorf("no header is %s", got)
	}
}

func said(code codes.Code, words string) error {
	return request{steering: steering{write: &ops.Write{}}}.explained(newAnswer(status.New(code, words), nil, ""))
}

// ResourceExhausted from an attach means slots and nothing else: it sends the pod to another node.
func TestOnlySlotsAreExhausted(t *testing.T) {
	for words, want := range map[string]fault.Kind{wordsSlots: fault.Exhausted, "Quota limit compute.something exceeded": fault.Unavailable} {
		if err := attachError(fmt.Errorf("attach: %w", said(codes.ResourceExhausted, words))); fault.Of(err) != want {
			t.Errorf("%q = %v, want the kind %q", words, err, want)
		}
	}
	if err := attachError(said(codes.NotFound, "")); fault.Of(err) != fault.NotFound {
		t.Errorf("another kind becomes %v", err)
	}
}
