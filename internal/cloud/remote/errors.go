package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// longestWords bounds what is repeated of an answer, which may be a page of HTML.
const longestWords = 300

// Answer is what a cloud said when it refused or failed.
type Answer struct {
	// Status is that of HTTP.
	Status int
	// Words are the cloud's, in one line.
	Words string
	// Fields are the parts of the request that the cloud names.
	Fields []string
	// RequestID is what the cloud's support asks for, if there is one.
	RequestID string
}

// NewAnswer returns an answer with the words in one short line.
func NewAnswer(status int, words, requestID string) *Answer {
	words = strings.Join(strings.Fields(words), " ")
	return &Answer{Status: status, Words: words[:min(len(words), longestWords)], RequestID: requestID}
}

// Error repeats the cloud's words and the id that its support asks for.
func (a *Answer) Error() string {
	text := fmt.Sprintf("the cloud answers %d %q", a.Status, a.Words)
	if a.RequestID != "" {
		text += " (request " + a.RequestID + ")"
	}
	return text
}

// FromCloud marks it for package fault.
func (a *Answer) FromCloud() {}

// Says reports whether the words have a text, which is in lower case.
func (a *Answer) Says(text string) bool {
	return strings.Contains(strings.ToLower(a.Words), text)
}

// Errors gives the failures of requests to one API over HTTP their kinds.
type Errors struct {
	// Parse returns the cloud's answer behind an error of its SDK; nil: there was none.
	Parse func(err error) *Answer
	// Kind is the API's table of answers and kinds.
	Kind func(a *Answer) fault.Kind
}

// Of returns the cloud's answer behind an error, or nil if there was none.
func (e Errors) Of(err error) *Answer {
	var a *Answer
	if errors.As(err, &a) {
		return a
	}
	if e.Parse == nil || err == nil {
		return nil
	}
	return e.Parse(err)
}

// Read gives the failure of a read its kind.
func (e Errors) Read(doing string, err error) error {
	if err == nil {
		return nil
	}
	if a := e.Of(err); a != nil {
		return fmt.Errorf("%s: %w: %w", doing, e.Kind(a), a)
	}
	return fmt.Errorf("%s: %w: %w", doing, fault.Unavailable, Plain(err))
}

// Write gives the failure of a write its kind: fault.Uncertain unless it is known that nothing
// was changed.
func (e Errors) Write(doing string, err error) error {
	if err == nil {
		return nil
	}
	switch a := e.Of(err); {
	case a != nil && a.Status >= http.StatusInternalServerError, a != nil && a.Status == http.StatusRequestTimeout:
		return fmt.Errorf("%s: %w: %w", doing, fault.Uncertain, a)
	case a != nil:
		return fmt.Errorf("%s: %w: %w", doing, e.Kind(a), a)
	case errors.Is(err, fault.Unavailable), errors.Is(err, fault.Uncertain):
		return fmt.Errorf("%s: %w", doing, err) // the layer below knows whether it was sent
	case neverSent(err):
		return fmt.Errorf("%s: %w: %w", doing, fault.Unavailable, Plain(err))
	default:
		return fmt.Errorf("%s: %w: the answer was lost: %w", doing, fault.Uncertain, Plain(err))
	}
}

// Refused reports whether the cloud looked at a write and said no, so that a look at the state tells why.
// What is about the token, the quota or the budget is not about the state.
func (e Errors) Refused(err error) bool {
	a := e.Of(err)
	if a == nil {
		return false
	}
	switch a.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity:
		return true
	default:
		return false
	}
}

// neverSent reports whether not even a connection was made.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// Plain keeps of an error of the transport what tells something, and the context's own for errors.Is.
func Plain(err error) error {
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ended) {
			return ended
		}
	}
	return err
}

// mostPuzzles is how often a write is sent that is refused though the state allows it. The state may have
// changed in between; what it is refused for may also be nothing that the API shows.
const mostPuzzles = 5

// Puzzles counts such refusals of one call.
type Puzzles int

// Count lets a refusal pass as fault.Busy, which is sent again after a pause, until there have been enough.
func (p *Puzzles) Count(err error) error {
	if fault.Of(err) != fault.Busy {
		return err
	}
	if *p++; *p < mostPuzzles {
		return err
	}
	return fmt.Errorf("%w: refused %d times, though the state allows it; what the cloud says should tell why: %w", fault.Unavailable, mostPuzzles, err)
}
