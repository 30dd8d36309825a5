package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// requestIDHeader has the id of a request for the cloud's support.
const requestIDHeader = "X-Request-Id"

// maxWords is how much of an answer an error repeats: it may be a page of HTML.
const maxWords = 300

// Answer is an error of the cloud.
type Answer struct {
	Status int
	// Code is the API's own code, if it has one.
	Code string
	// Words are the cloud's message in one line, without the token.
	Words string
	// RequestID is the id for the cloud's support, if there is one.
	RequestID string
	// Fields are the fields of the request that the message is about, if the API names them.
	Fields []string
}

// Line returns a text of the cloud as one short line without control characters. A text with the token, as from a proxy that repeats the
// request, is dropped, because errors appear as events in the claim's namespace.
func Line(s, token string) string {
	if token != "" && strings.Contains(s, token) || strings.Contains(s, "Bearer ") {
		return "(it repeats the request)"
	}
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	return strings.ToValidUTF8(s[:min(len(s), maxWords)], "")
}

// quotation is an error with the text that Line returns for it.
type quotation struct {
	error
	text string
}

func (q quotation) Error() string { return q.text }

func (q quotation) Unwrap() error { return q.error }

// quoted returns an error about an answer, of which net/http and decoders repeat parts, with a text as Line's.
func quoted(err error, token string) error {
	if err == nil || AnswerOf(err) != nil {
		return err
	}
	if text := Line(err.Error(), token); text != err.Error() {
		return quotation{err, text}
	}
	return err
}

// answerOf reads a refusal, and reports whether its body has the API's form. Another body, such as the page of a proxy, becomes the
// message as it is.
func (c *Client) answerOf(resp *http.Response, token string) (a *Answer, ok bool) {
	parse := c.Refusal
	if parse == nil {
		parse = message
	}
	body, _ := io.ReadAll(resp.Body) // what arrived is all that there is to report
	said, ok := parse(body)
	if !ok {
		said = Answer{Words: string(body)}
	}
	return &Answer{
		Status: resp.StatusCode, Code: Line(said.Code, token), Words: Line(said.Words, token), Fields: said.Fields,
		RequestID: Line(cmp.Or(said.RequestID, resp.Header.Get(requestIDHeader)), token),
	}, ok
}

// Kind returns the usual kind of a refusal with this status. Callers know which object 400, 404 and 422 are about, and may read its state
// and return another kind.
func (a *Answer) Kind() fault.Kind {
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Denied
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusConflict:
		return fault.Conflict
	case http.StatusLocked:
		return fault.Busy
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return fault.InvalidArgument
	default:
		return fault.Unavailable
	}
}

// message reads {"id":..,"message":..,"request_id":..}. The id is required, though a recorded one is empty: gateways send messages too.
func message(body []byte) (Answer, bool) {
	var said struct {
		ID        *string `json:"id"`
		Message   string  `json:"message"`
		RequestID string  `json:"request_id"`
	}
	if err := json.Unmarshal(body, &said); err != nil || said.ID == nil || said.Message == "" {
		return Answer{}, false
	}
	return Answer{Code: *said.ID, Words: said.Message, RequestID: said.RequestID}, true
}

// AnswerOf returns the cloud's answer in an error, or nil.
func AnswerOf(err error) *Answer {
	var a *Answer
	errors.As(err, &a)
	return a
}

// NotFound reports whether the cloud answered a request with 404.
func NotFound(err error) bool {
	a := AnswerOf(err)
	return a != nil && a.Status == http.StatusNotFound
}

// Error returns the cloud's message and the id for its support.
func (a *Answer) Error() string {
	text := fmt.Sprintf("the cloud answers %d %q", a.Status, a.Words)
	if a.Code != "" {
		text = fmt.Sprintf("the cloud answers %d %s %q", a.Status, a.Code, a.Words)
	}
	if a.RequestID != "" {
		text += " (request " + a.RequestID + ")"
	}
	return text
}

// FromCloud marks it for package fault.
func (a *Answer) FromCloud() {}

// Refused reports whether the cloud refused because of the object's state, as opposed to the token, the quota or the budget; see package
// ops.
func (a *Answer) Refused() bool {
	switch a.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity:
		return true
	default:
		return false
	}
}

// Says reports whether the message contains a text, which is in lower case.
func (a *Answer) Says(text string) bool { return strings.Contains(strings.ToLower(a.Words), text) }

// Number parses an id in a cloud whose ids are numbers from 1; 0 for an id that such a cloud cannot have.
func Number[T ~string](id T) int {
	n, err := strconv.Atoi(string(id))
	if err != nil || n < 0 || strconv.Itoa(n) != string(id) {
		return 0
	}
	return n
}

// IsNumber reports whether this can be such an id.
func IsNumber[T ~string](id T) bool { return Number(id) > 0 }
