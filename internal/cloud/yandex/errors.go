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

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The API says with a code what went wrong, and one code stands for several things. These are all the texts
// that are looked for; facts with sources are in docs/backends.
const (
	// textActive: ResourceExhausted, as many operations are running in the folder as the cloud allows.
	textActive = "active operations"
	// textSlots: ResourceExhausted, the instance has as many disks as it can have.
	textSlots = "attached disks"
	// textAttached: FailedPrecondition, the disk would have to be free, or its instance stopped.
	textAttached = "attached to"
	// textTooLarge begins the words of this program's own gRPC client for an answer beyond maxAnswer. Their code is
	// that of a quota.
	textTooLarge = "grpc: received message "
)

// textsThrottled are those of ResourceExhausted for want of the API's own budget.
var textsThrottled = []string{"rate limit", "too many requests", "requests per"}

// maxWords bounds what is repeated of an answer.
const maxWords = 300

// answer is what the cloud said when it refused or failed, to a request or at the end of an operation.
type answer struct {
	code  codes.Code
	words string
	// requestID is what the cloud's support asks for, if there is one.
	requestID string
	// operation is the one that has failed, or empty: it was the request that was refused.
	operation string
}

// newAnswer takes in a status. What is said of a quota stands in the details. Words that hold the token, as a proxy's
// may that repeats the request, are dropped: errors reach the claim's namespace.
func newAnswer(s *status.Status, header metadata.MD, token string) *answer {
	a := &answer{code: s.Code(), words: line(s.Message(), token), requestID: requestIDOf(header, token)}
	for _, detail := range s.Details() {
		failure, ok := detail.(*quota.QuotaFailure)
		if !ok {
			continue
		}
		for _, v := range failure.GetViolations() {
			a.words += line(fmt.Sprintf("; quota %s: limit %d, in use %v, %d would be needed",
				v.GetMetric().GetName(), v.GetMetric().GetLimit(), v.GetMetric().GetUsage(), v.GetRequired()), token)
		}
	}
	return a
}

// line is a text of the cloud in one short line without the token.
func line(text, token string) string {
	if token != "" && strings.Contains(text, token) || strings.Contains(text, "Bearer ") {
		return "(it repeats the request)"
	}
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), maxWords)]
}

// requestIDOf is what the cloud's support asks for, or nothing.
func requestIDOf(header metadata.MD, token string) string {
	for _, name := range []string{"x-request-id", "x-server-trace-id"} {
		if ids := header.Get(name); len(ids) > 0 {
			return line(ids[0], token)
		}
	}
	return ""
}

// failureOf is the error of an operation that has ended, or nil. The next attempt may succeed, but for want of space.
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

// Error repeats the cloud's words and the id that its support asks for.
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

// Refused reports whether the cloud looked at the object and said no; see package ops. What is about the token, a
// quota or the budget is not.
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

// says reports whether the words have a text, which is in lower case.
func (a *answer) says(text string) bool { return strings.Contains(strings.ToLower(a.words), text) }

// vague reports whether the code may come from half way: of a server that did something, or from a proxy.
func (a *answer) vague() bool {
	switch a.code {
	case codes.Unavailable, codes.Internal, codes.Unknown, codes.DeadlineExceeded, codes.Canceled, codes.DataLoss:
		return true
	default:
		return false
	}
}

// throttled reports whether a request was refused for want of the API's own budget.
func (a *answer) throttled() bool {
	return a.code == codes.ResourceExhausted && a.operation == "" && slices.ContainsFunc(textsThrottled, a.says)
}

// answerOf returns the cloud's answer behind an error, or nil if there was none.
func answerOf(err error) *answer {
	var a *answer
	errors.As(err, &a)
	return a
}

// saysNone reports whether the cloud answers that there is no such object.
func saysNone(err error) bool {
	a := answerOf(err)
	return a != nil && a.code == codes.NotFound
}

// wrap puts what was done before an error; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// kindOf is the table of codes and kinds. What NotFound and FailedPrecondition are about is known to the
// caller, who may read the state and answer something else.
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
