package yandex

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/quota"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// One code of the API has several meanings, so the driver matches these texts. The facts with their sources are in docs/contributing/clouds.md.
const (
	// textActive: ResourceExhausted, the maximum number of operations is running in the folder.
	textActive = "active operations"
	// textSlots: ResourceExhausted, the instance is at its attach limit.
	textSlots = "attached disks"
	// textAttached: FailedPrecondition, the disk must be detached or its instance stopped.
	textAttached = "attached to"
)

// codeThrottled is the code in the metrics of a request that the API's own budget has no room for, as on the other clouds.
// ResourceExhausted is also a quota's, and the alert CloudblockAPIThrottled is not about these.
const codeThrottled = "429"

// textsOfClient begin the messages of the gRPC client about an answer that it cannot read, such as a page of a gateway. Their codes are
// those of refusals.
var textsOfClient = []string{"grpc: ", "stream terminated by ", "unexpected HTTP status code received from server: "}

// textsThrottled are the texts of ResourceExhausted when the API's own budget is used up.
var textsThrottled = []string{"rate limit", "rate quota", "too many requests", "requests per"}

// answer is the error of the cloud to a request, or at the end of an operation.
type answer struct {
	code  codes.Code
	words string
	// requestID is the id for the cloud's support, if there is one.
	requestID string
	// operation is the failed operation; empty: the request was refused.
	operation string
}

// newAnswer reads a status. The details tell which quota is exceeded.
func newAnswer(s *status.Status, header metadata.MD, token string) *answer {
	a := &answer{code: s.Code(), words: api.Line(s.Message(), token), requestID: requestIDOf(header, token)}
	for _, detail := range s.Details() {
		failure, ok := detail.(*quota.QuotaFailure)
		if !ok {
			continue
		}
		for _, v := range failure.GetViolations() {
			a.words += api.Line(fmt.Sprintf("; quota %s: limit %d, in use %v, %d would be needed",
				v.GetMetric().GetName(), v.GetMetric().GetLimit(), v.GetMetric().GetUsage(), v.GetRequired()), token)
		}
	}
	return a
}

// requestIDOf returns the id for the cloud's support, or "".
func requestIDOf(header metadata.MD, token string) string {
	for _, name := range []string{"x-request-id", "x-server-trace-id"} {
		if ids := header.Get(name); len(ids) > 0 {
			return api.Line(ids[0], token)
		}
	}
	return ""
}

// failureOf returns the error of a finished operation, or nil. A repeat may succeed, unless the error is about space.
func failureOf(op *operation.Operation) error {
	if op.GetError() == nil {
		return nil
	}
	a := newAnswer(status.FromProto(op.GetError()), nil, "")
	a.operation = op.GetId()
	if kind := kindOf(a); kind == fault.Exhausted {
		return fmt.Errorf("%w: %w", kind, a)
	}
	return fmt.Errorf("%w: %w", fault.Unavailable, a)
}

// Error returns the cloud's message and the id for its support.
func (a *answer) Error() string {
	text := fmt.Sprintf("the cloud answers %s %q", a.code, a.words)
	if a.operation != "" {
		text = fmt.Sprintf("the cloud's operation %s has failed: %s %q", a.operation, a.code, a.words)
	}
	if a.requestID != "" {
		text += " (request " + a.requestID + ")"
	}
	return text
}

// FromCloud marks it for package fault.
func (a *answer) FromCloud() {}

// Refused reports whether the cloud refused because of the object's state, as opposed to the token, a quota or the budget; see package
// ops.
func (a *answer) Refused() bool {
	switch a.code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return true
	case codes.ResourceExhausted:
		return a.says(textSlots)
	default:
		return false
	}
}

// says reports whether the message contains a text, which is in lower case.
func (a *answer) says(text string) bool { return strings.Contains(strings.ToLower(a.words), text) }

// vague reports whether the code leaves open what was done: it may be from a proxy, or from a server that failed half-way.
func (a *answer) vague() bool {
	switch a.code {
	case codes.Unavailable, codes.Internal, codes.Unknown, codes.DeadlineExceeded, codes.Canceled, codes.DataLoss:
		return true
	default:
		return false
	}
}

// throttled reports whether the cloud refused because the API's own budget is used up.
func (a *answer) throttled() bool {
	return a.code == codes.ResourceExhausted && slices.ContainsFunc(textsThrottled, a.says)
}

// ofClient reports whether a status is from the gRPC client and not from the cloud.
func ofClient(s *status.Status) bool {
	return slices.ContainsFunc(textsOfClient, func(text string) bool { return strings.HasPrefix(s.Message(), text) })
}

// answerOf returns the cloud's answer in an error, or nil.
func answerOf(err error) *answer {
	var a *answer
	errors.As(err, &a)
	return a
}

// saysNone reports whether the cloud answers that the object does not exist.
func saysNone(err error) bool {
	a := answerOf(err)
	return a != nil && a.code == codes.NotFound
}

// before returns the failure of a request on which others depend, such as that for a token. The cloud's answer is only text in it: with a
// NotFound the token's account does not exist, and the disk of the request that needs the token may.
func before(err error, format string, args ...any) error {
	a := answerOf(err)
	if a == nil {
		return wrap(err, format, args...)
	}
	kind := kindOf(a)
	if kind != fault.Denied {
		kind = fault.Unavailable
	}
	return fmt.Errorf("%s: %w: %s", fmt.Sprintf(format, args...), kind, a.Error())
}

// wrap prefixes an error with what was attempted; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// kindOf maps codes to kinds. Callers know which object NotFound and FailedPrecondition are about, and may read its state and return
// another kind.
func kindOf(a *answer) fault.Kind {
	switch a.code {
	case codes.InvalidArgument:
		return fault.InvalidArgument
	case codes.NotFound:
		return fault.NotFound
	case codes.AlreadyExists:
		return fault.Conflict
	case codes.PermissionDenied, codes.Unauthenticated:
		return fault.Denied
	case codes.ResourceExhausted:
		switch {
		case a.says(textActive):
			return fault.Busy
		case a.throttled():
			return fault.Unavailable
		}
		return fault.Exhausted
	case codes.FailedPrecondition:
		return fault.Precondition
	case codes.Aborted:
		return fault.Busy
	case codes.OutOfRange:
		return fault.OutOfRange
	case codes.Unimplemented:
		return fault.Unsupported
	default:
		return fault.Unavailable
	}
}
