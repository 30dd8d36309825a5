package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// The API says with a status what went wrong, and often only the text tells two cases of one status
// apart. These are all the texts that are looked for; facts with sources are in docs/backends.
const (
	// textPending: 422, the droplet (or the volume) is busy with another action.
	textPending = "pending event"
	// textLimit: 403, a quota of the account; a 403 without it is about the token.
	textLimit = "limit"
	// textSlots: 422, the droplet has as many volumes as it can have.
	textSlots = "cannot attach more"
	// textTooSoon: 429, a volume may be snapshotted once in 10 minutes. Not the API's rate limit.
	textTooSoon = "one request per"
)

// longestWords bounds what is repeated of an answer, which may be a page of HTML.
const longestWords = 300

// answer is what the cloud said when it refused or failed.
type answer struct {
	status    int
	words     string
	requestID string
}

// Error repeats the cloud's words and the id that its support asks for.
func (a *answer) Error() string {
	text := fmt.Sprintf("the cloud answers %d %q", a.status, a.words)
	if a.requestID != "" {
		text += " (request " + a.requestID + ")"
	}
	return text
}

func (a *answer) says(text string) bool {
	return strings.Contains(strings.ToLower(a.words), text)
}

// answerOf returns the cloud's answer behind an error, or nil if there was none.
func answerOf(err error) *answer {
	var a *answer
	if errors.As(err, &a) {
		return a
	}
	var r *godo.ErrorResponse
	if !errors.As(err, &r) || r.Response == nil {
		return nil
	}
	words := strings.Join(strings.Fields(r.Message), " ")
	return &answer{status: r.Response.StatusCode, words: words[:min(len(words), longestWords)], requestID: r.RequestID}
}

// readError gives the failure of a read its kind.
func readError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if a := answerOf(err); a != nil {
		return fmt.Errorf("%s: %w: %w", doing, kindOf(a), a)
	}
	return fmt.Errorf("%s: %w: %w", doing, fault.Unavailable, plain(err))
}

// writeError gives the failure of a write its kind: fault.Uncertain unless it is known that nothing
// was changed.
func writeError(doing string, err error) error {
	if err == nil {
		return nil
	}
	switch a := answerOf(err); {
	case a != nil && a.status >= http.StatusInternalServerError, a != nil && a.status == http.StatusRequestTimeout:
		return fmt.Errorf("%s: %w: %w", doing, fault.Uncertain, a)
	case a != nil:
		return fmt.Errorf("%s: %w: %w", doing, kindOf(a), a)
	case errors.Is(err, fault.Unavailable), errors.Is(err, fault.Uncertain):
		return fmt.Errorf("%s: %w", doing, err) // the layer below knows whether it was sent
	case neverSent(err):
		return fmt.Errorf("%s: %w: %w", doing, fault.Unavailable, plain(err))
	default:
		return fmt.Errorf("%s: %w: the answer was lost: %w", doing, fault.Uncertain, plain(err))
	}
}

// neverSent reports whether not even a connection was made.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// plain keeps of an error of the transport what tells something, and the context's own for errors.Is.
func plain(err error) error {
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ended) {
			return ended
		}
	}
	return err
}

// kindOf is the table of statuses and kinds. What 404 and 422 are about is known to the caller, who may
// look and answer something else.
func kindOf(a *answer) fault.Kind {
	switch a.status {
	case http.StatusUnauthorized:
		return fault.Denied
	case http.StatusForbidden:
		if a.says(textLimit) {
			return fault.Exhausted
		}
		return fault.Denied
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusConflict:
		return fault.Conflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		switch {
		case a.says(textPending):
			return fault.Busy
		case a.says(textSlots):
			return fault.Exhausted
		}
		return fault.InvalidArgument
	case http.StatusTooManyRequests:
		if a.says(textTooSoon) {
			return fault.Precondition
		}
		return fault.Unavailable
	default:
		return fault.Unavailable
	}
}

// refused reports whether the cloud looked at a write and said no, so that a look at the state tells why.
// What is about the token, the quota or the budget is not about the state.
func refused(err error) bool {
	a := answerOf(err)
	if a == nil {
		return false
	}
	switch a.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity:
		return true
	default:
		return false
	}
}

// mostPuzzles is how often a write is sent that is refused though the state allows it. The state may have
// changed in between; what it is refused for may also be nothing that the API shows.
const mostPuzzles = 5

// puzzles counts such refusals of one call.
type puzzles int

// count lets a refusal pass as fault.Busy, which is sent again after a pause, until there have been enough.
func (p *puzzles) count(err error) error {
	if fault.Of(err) != fault.Busy {
		return err
	}
	if *p++; *p < mostPuzzles {
		return err
	}
	return fmt.Errorf("%w: refused %d times, though the state allows it; what the cloud says should tell why: %w", fault.Unavailable, mostPuzzles, err)
}

// isBudget tells the API's rate limit from the rule about snapshots, which has the same status.
func isBudget(_ *http.Response, body []byte) bool {
	return !strings.Contains(strings.ToLower(string(body)), textTooSoon)
}
