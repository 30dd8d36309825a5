package cloudtest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// hostileAnswer is an answer that does not answer the request.
type hostileAnswer struct {
	status     int
	kind, body string
	cut        bool
}

const (
	emptyObject = "an empty object"
	redirect    = "a redirect"
	tooLarge    = "64 MiB"
)

// hostile are answers of a proxy or of a broken API.
var hostile = map[string]hostileAnswer{
	"HTML":                {http.StatusOK, "text/html", "<html>please log in</html>", false},
	"nothing":             {http.StatusOK, "application/json", "", false},
	"an empty list":       {http.StatusOK, "application/json", "[]", false},
	"an object as HTML":   {http.StatusOK, "text/html", "{}", false},
	emptyObject:           {http.StatusOK, "application/json", "{}", false},
	"{} and 500":          {http.StatusInternalServerError, "application/json", "{}", false},
	"a proxy's 502":       {http.StatusBadGateway, "text/html", "<html>bad gateway</html>", false},
	"null":                {http.StatusOK, "application/json", "null", false},
	redirect:              {http.StatusFound, "text/html", "", false},
	"a proxy's 404":       {http.StatusNotFound, "text/html", "default backend - 404", false},
	"a part of an answer": {http.StatusOK, "application/json", `{"id":1,`, true},
	"a proxy's 400":       {http.StatusBadRequest, "text/html", "<html>bad request</html>", false},
	"another API's 404":   {http.StatusNotFound, "application/json", `{"unexpected":"not found"}`, false},
	tooLarge:              {http.StatusOK, "application/json", "{" + strings.Repeat(" ", 64<<20) + "}", false},
}

// DisbelieveAnswers checks the calls of an SDK one by one: no hostile answer is a success, and each call sends one request. calls
// returns the calls by name, over the transport through. says, which may be nil, reports whether such an answer does mean success
// of a call.
func DisbelieveAnswers(t *testing.T, calls func(t *testing.T, through http.RoundTripper) map[string]func(ctx context.Context) error, says func(call, answer string) bool) {
	for answer, a := range hostile {
		asked := 0
		through := RoundTripper(func(r *http.Request) (*http.Response, error) {
			asked++
			return a.to(r), nil
		})
		for call, do := range calls(t, through) {
			asked = 0
			err := do(t.Context())
			if done := says != nil && says(call, answer); (err == nil) != done {
				t.Errorf("%s, answered with %s: %v, want success: %v", call, answer, err, done)
			}
			if asked != 1 {
				t.Errorf("%s, answered with %s, has sent %d requests, want one", call, answer, asked)
			}
		}
	}
}

// to returns the answer to a request.
func (a hostileAnswer) to(r *http.Request) *http.Response {
	answer := Answer(r, a.status, a.kind, a.body)
	answer.Header.Set("Location", "https://elsewhere.example/")
	if a.cut {
		answer.Body = io.NopCloser(io.MultiReader(answer.Body, brokenOff{}))
	}
	return answer
}

// Answer returns an answer to a request.
func Answer(r *http.Request, status int, kind, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

// Answering replaces the answers to the requests with a method; "": to all.
func Answering(base http.RoundTripper, method string, status int, kind, body string) http.RoundTripper {
	return RoundTripper(func(r *http.Request) (*http.Response, error) {
		if method != "" && r.Method != method {
			return base.RoundTrip(r)
		}
		return Answer(r, status, kind, body), nil
	})
}

// brokenOff is the body of an answer whose connection breaks.
type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
