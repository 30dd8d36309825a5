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
)

// requestIDHeader is where a cloud names a request for its support.
const requestIDHeader = "X-Request-Id"

// maxWords bounds what is repeated of an answer, which may be a page of HTML.
const maxWords = 300

// Answer is what a cloud said when it refused or failed.
type Answer struct {
	Status int
	// Words are the cloud's, in one line, without the token.
	Words string
	// RequestID is what the cloud's support asks for, if there is one.
	RequestID string
	// Fields are the parts of the request that the words are about, where the API names them.
	Fields []string
}

// Refusal is what the body of a refusal says.
type Refusal struct {
	Words, RequestID string
	Fields           []string
}

// NewAnswer returns an answer in one short line. Words that hold the token, as a proxy's may that repeats the
// request, are dropped: errors reach the claim's namespace.
func NewAnswer(status int, words, requestID, token string) *Answer {
	return &Answer{Status: status, Words: line(words, token), RequestID: line(requestID, token)}
}

// line is a text of the cloud in one short line without the token, and without what would steer a terminal.
func line(s, token string) string {
	if token != "" && strings.Contains(s, token) || strings.Contains(s, "Bearer ") {
		return "(it repeats the request)"
	}
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	return s[:min(len(s), maxWords)]
}

// answerOf reads a refusal, and reports whether its body is in the API's form. One that is not, such as the page of a
// proxy, is repeated as it is.
func (c *Client) answerOf(resp *http.Response, token string) (a *Answer, ok bool) {
	parse := c.Refusal
	if parse == nil {
		parse = message
	}
	body, _ := io.ReadAll(resp.Body) // what arrived is all that there is to report
	said, ok := parse(body)
	if !ok {
		said = Refusal{Words: string(body)}
	}
	if said.RequestID == "" {
		said.RequestID = resp.Header.Get(requestIDHeader)
	}
	a = NewAnswer(resp.StatusCode, said.Words, said.RequestID, token)
	a.Fields = said.Fields
	return a, ok
}

// message reads {"id":..,"message":..,"request_id":..}.
func message(body []byte) (Refusal, bool) {
	var said struct {
		Message   string `json:"message"`
		RequestID string `json:"request_id"`
	}
	err := json.Unmarshal(body, &said)
	return Refusal{Words: said.Message, RequestID: said.RequestID}, err == nil && said.Message != ""
}

// AnswerOf returns the cloud's answer behind an error, or nil if there was none.
func AnswerOf(err error) *Answer {
	var a *Answer
	errors.As(err, &a)
	return a
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

// Refused reports whether the cloud looked at the object and said no; see package ops. What is about the
// token, the quota or the budget is not.
func (a *Answer) Refused() bool {
	switch a.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity:
		return true
	default:
		return false
	}
}

// Says reports whether the words have a text, which is in lower case.
func (a *Answer) Says(text string) bool { return strings.Contains(strings.ToLower(a.Words), text) }

// Number returns the number that an id is in a cloud that numbers its objects from 1, or false for an id that such a cloud
// cannot have made.
func Number[T ~string](id T) (int, bool) {
	n, err := strconv.Atoi(string(id))
	return n, err == nil && n > 0 && strconv.Itoa(n) == string(id)
}

// ByNumber compares two such ids.
func ByNumber(a, b string) int {
	if order := cmp.Compare(len(a), len(b)); order != 0 {
		return order
	}
	return strings.Compare(a, b)
}
