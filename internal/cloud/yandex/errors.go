package yandex

import (
	"errors"
	"fmt"
	"strings"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/quota"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/remote"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The API says with a code what went wrong, and one code stands for several things. These are all the texts
// that are looked for; facts with sources are in docs/backends.
const (
	// textActive: ResourceExhausted, as many operations are running in the folder as the cloud allows.
	textActive = "active operations"
	// textSlots: ResourceExhausted, the machine has as many disks as it can have.
	textSlots = "attached disks"
	// textAttached: FailedPrecondition, the disk would have to be free, or its machine stopped.
	textAttached = "attached to"
)

// textsBudget are those of ResourceExhausted for want of the API's own budget.
var textsBudget = []string{"rate limit", "too many requests", "requests per"}

// longestWords bounds what is repeated of an answer.
const longestWords = 300

// answer is what the cloud said when it refused or failed, to a request or at the end of an operation.
type answer struct {
	code  codes.Code
	words string
	// requestID is what the cloud's support asks for, if it was told.
	requestID string
	// operation is the one that has failed, or empty: it was the request that was refused.
	operation string
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

func (a *answer) says(text string) bool { return strings.Contains(strings.ToLower(a.words), text) }

// newAnswer takes in a status. What is said of a quota stands in the details.
func newAnswer(s *status.Status) *answer {
	words := strings.Join(strings.Fields(s.Message()), " ")
	words = words[:min(len(words), longestWords)]
	for _, detail := range s.Details() {
		failure, ok := detail.(*quota.QuotaFailure)
		if !ok {
			continue
		}
		for _, v := range failure.GetViolations() {
			words += fmt.Sprintf("; quota %s: limit %d, in use %v, %d would be needed",
				v.GetMetric().GetName(), v.GetMetric().GetLimit(), v.GetMetric().GetUsage(), v.GetRequired())
		}
	}
	return &answer{code: s.Code(), words: words}
}

// answerOf returns the cloud's answer behind an error, or nil if there was none.
func answerOf(err error) *answer {
	var a *answer
	if errors.As(err, &a) {
		return a
	}
	return nil
}

// readError gives the failure of a read its kind.
func readError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if a := answerOf(err); a != nil {
		return fmt.Errorf("%s: %w: %w", doing, kindOf(a), a)
	}
	return fmt.Errorf("%s: %w: %w", doing, kindWithout(err, fault.Unavailable), remote.Plain(err))
}

// writeError gives the failure of a write its kind: fault.Uncertain unless it is known that nothing
// was changed.
func writeError(doing string, err error) error {
	switch a := answerOf(err); {
	case err == nil:
		return nil
	case a != nil && blurred(a.code):
		return fmt.Errorf("%s: %w: %w", doing, fault.Uncertain, a)
	case a != nil:
		return fmt.Errorf("%s: %w: %w", doing, kindOf(a), a)
	default:
		return fmt.Errorf("%s: %w: %w", doing, kindWithout(err, fault.Uncertain), remote.Plain(err))
	}
}

// kindWithout is the kind of an error without an answer of the cloud: the one that the layer below gave it,
// which knows what was sent.
func kindWithout(err error, otherwise fault.Kind) fault.Kind {
	if kind := fault.Of(err); kind != fault.None {
		return kind
	}
	return otherwise
}

// blurred reports whether a code may come from half way: of a server that did something, or from a proxy.
func blurred(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.Internal, codes.Unknown, codes.DeadlineExceeded, codes.Canceled, codes.DataLoss:
		return true
	default:
		return false
	}
}

// kindOf is the table of codes and kinds. What NotFound and FailedPrecondition are about is known to the
// caller, who may look and answer something else.
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
		case budgetRefusal(a):
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

// budgetRefusal reports whether a request was refused for want of the API's own budget.
func budgetRefusal(a *answer) bool {
	if a.code != codes.ResourceExhausted || a.operation != "" {
		return false
	}
	for _, text := range textsBudget {
		if a.says(text) {
			return true
		}
	}
	return false
}

// refused reports whether the cloud looked at a write and said no, or took it on and gave it up, so that a
// look at the state tells why. What is about the token, the quota or the budget is not about the state.
func refused(err error) bool {
	a := answerOf(err)
	if a == nil {
		return false
	}
	switch a.code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return true
	case codes.ResourceExhausted:
		return a.says(textSlots)
	default:
		return a.operation != "" && blurred(a.code)
	}
}

// hasFailed reports whether the error is that of an operation which the cloud carried out and gave up. It has
// changed nothing that is known of.
func hasFailed(err error) bool {
	a := answerOf(err)
	return a != nil && a.operation != ""
}

// unseen gives the failed wait for an operation that was sent its kind. Only of one that is seen to have
// failed the outcome is known; one that nobody could see to its end, for want of time or of the permission to
// look, goes on.
func unseen(err error) error {
	if err == nil || hasFailed(err) || errors.Is(err, fault.Uncertain) {
		return err
	}
	return fmt.Errorf("%w: the operation goes on unseen: %w", fault.Uncertain, err)
}
