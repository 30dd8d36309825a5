package cloudtest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A hostileAnswer says nothing of what was asked for.
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

// hostile are answers from a proxy or from an API that breaks.
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

// DisbelieveAnswers checks the calls of an SDK one by one: whatever it makes of a hostile answer, none is a success, and each call sends
// one request. calls returns them by name, over that transport. says, which may be nil, is for calls to which such an answer
// does say that it was done.
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

// to is the answer to a request.
func (a hostileAnswer) to(r *http.Request) *http.Response {
	body := io.Reader(strings.NewReader(a.body))
	if a.cut {
		body = io.MultiReader(body, brokenOff{})
	}
	return &http.Response{
		StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: io.NopCloser(body),
		Header: http.Header{"Content-Type": {a.kind}, "Location": {"https://elsewhere.example/"}},
	}
}

// brokenOff is a connection that ends within an answer.
type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
