package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/digitalocean/godo"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// says is an answer of the API as the SDK hands it over.
func says(status int, message string) error {
	u := &url.URL{Scheme: "https", Host: "api.example", Path: "/v2/volumes"}
	return &godo.ErrorResponse{
		Response:  &http.Response{StatusCode: status, Request: &http.Request{Method: http.MethodPost, URL: u}},
		Message:   message,
		RequestID: "r-1",
	}
}

func TestEachAnswerBecomesItsKind(t *testing.T) {
	tests := map[string]struct {
		err         error
		read, write fault.Kind
	}{
		"a token that is not accepted":             {says(401, "Unable to authenticate you."), fault.Denied, fault.Denied},
		"a token without the permission":           {says(403, "You are not authorized to perform this operation"), fault.Denied, fault.Denied},
		"the account's quota":                      {says(403, "failed to create volume: volume/snapshot capacity limit exceeded"), fault.Exhausted, fault.Exhausted},
		"the account's number of volumes":          {says(403, "volume limit reached"), fault.Exhausted, fault.Exhausted},
		"something that does not exist":            {says(404, "The resource you requested could not be found."), fault.NotFound, fault.NotFound},
		"a name that is taken":                     {says(409, "already exists"), fault.Conflict, fault.Conflict},
		"a droplet that is busy":                   {says(422, "Droplet already has a pending event"), fault.Busy, fault.Busy},
		"a droplet that is full":                   {says(422, "cannot attach more volumes to the Droplet"), fault.Exhausted, fault.Exhausted},
		"a droplet that is full, in old words":     {says(422, "cannot attach more than 7 volumes to a single Droplet"), fault.Exhausted, fault.Exhausted},
		"a refusal for another reason":             {says(422, "This volume is already attached"), fault.InvalidArgument, fault.InvalidArgument},
		"a request that is wrong":                  {says(400, "bad"), fault.InvalidArgument, fault.InvalidArgument},
		"the rule of 10 minutes":                   {says(429, "failed to create snapshot: this operation is rate-limited - one request per 10m0s"), fault.Precondition, fault.Precondition},
		"the API's rate limit":                     {says(429, "API rate limit exceeded."), fault.Unavailable, fault.Unavailable},
		"a failure of the cloud":                   {says(500, "Unexpected server-side error"), fault.Unavailable, fault.Uncertain},
		"a gateway that gave up":                   {says(504, "<html>"), fault.Unavailable, fault.Uncertain},
		"a timeout of the cloud":                   {says(408, ""), fault.Unavailable, fault.Uncertain},
		"a status that nobody expects":             {says(418, "teapot"), fault.Unavailable, fault.Unavailable},
		"an answer that was lost":                  {&url.Error{Op: "Post", URL: "u", Err: io.EOF}, fault.Unavailable, fault.Uncertain},
		"an answer that cannot be read":            {io.ErrUnexpectedEOF, fault.Unavailable, fault.Uncertain},
		"no connection, so nothing was sent":       {&url.Error{Err: &net.OpError{Op: "dial", Err: io.EOF}}, fault.Unavailable, fault.Unavailable},
		"a write that the budget held back":        {&url.Error{Err: fmt.Errorf("%w: %w", fault.Unavailable, context.Canceled)}, fault.Unavailable, fault.Unavailable},
		"a connection that broke while it waited":  {&url.Error{Err: &net.OpError{Op: "read", Err: io.EOF}}, fault.Unavailable, fault.Uncertain},
		"an answer to a write that names no thing": {fmt.Errorf("%w: no id", fault.Uncertain), fault.Uncertain, fault.Uncertain},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := fault.Of(readError("look", tc.err)); got != tc.read {
				t.Errorf("after a read it is %q, want %q", got, tc.read)
			}
			if got := fault.Of(writeError("change", tc.err)); got != tc.write {
				t.Errorf("after a write it is %q, want %q", got, tc.write)
			}
		})
	}
	if readError("look", nil) != nil || writeError("change", nil) != nil {
		t.Error("no failure has become one")
	}
}

func TestAnErrorKeepsTheContextsAndTheCloudsWords(t *testing.T) {
	held := writeError("create volume \"a\"", &url.Error{Op: "Post", URL: "https://api.example", Err: fmt.Errorf("%w: %w", fault.Unavailable, context.Canceled)})
	if !errors.Is(held, context.Canceled) {
		t.Errorf("%v does not match the context's error", held)
	}
	page := "<html>" + strings.Repeat("x ", 5000)
	for _, tc := range []struct{ message, want string }{
		{"Droplet already has a pending event", `detach volume v: another change is under way: the cloud answers 422 "Droplet already has a pending event" (request r-1)`},
		{page, "request r-1"},
	} {
		err := writeError("detach volume v", says(422, tc.message))
		if !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 500 {
			t.Errorf("the error is %.600q, want %q in it", err, tc.want)
		}
	}
}

func TestOnlyTheRuleOfSnapshotsIsNoBudget(t *testing.T) {
	for body, want := range map[string]bool{
		`{"id":"too_many_requests","message":"API rate limit exceeded."}`: true,
		``: true,
		`{"id":"too_many_requests","message":"failed to create snapshot: this operation is rate-limited - one request per 10m0s"}`: false,
	} {
		if got := isBudget(nil, []byte(body)); got != want {
			t.Errorf("isBudget(%s) = %v, want %v", body, got, want)
		}
	}
}

func TestRoutesHaveNoIds(t *testing.T) {
	const id = "506f78a4-e098-11e5-ad9f-000f53306ae1"
	for path, want := range map[string]string{
		"/v2/volumes":                                 "/v2/volumes",
		"/v2/volumes/" + id:                           "/v2/volumes/{id}",
		"/v2/volumes/" + id + "/actions":              "/v2/volumes/{id}/actions",
		"/v2/actions/72531856":                        "/v2/actions/{id}",
		"/v2/droplets/7":                              "/v2/droplets/{id}",
		"/v2/tags/cloudblock-grow:20:quota/resources": "/v2/tags/{tag}/resources",
		"/v2/snapshots/" + id:                         "/v2/snapshots/{id}",
	} {
		if got := routeOf(path); got != want {
			t.Errorf("routeOf(%q) = %q, want %q", path, got, want)
		}
	}
}
