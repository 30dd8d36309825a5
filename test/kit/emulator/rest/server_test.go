package rest_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

func newServer(t *testing.T) *rest.Server {
	t.Helper()
	server := rest.New(rest.Config{
		Clock: clock.New(1), Token: "secret", RequestID: func() string { return "1" },
		Limited: func(http.Header, []rest.Budget, *rest.Budget) {},
		Problem: func(p rest.Problem, _ string) rest.Answer { return rest.Answer{Status: p.Status} },
	})
	t.Cleanup(server.Close)
	return server
}

// get sends a request with the token, in memory, and returns the status and the header of the answer.
func get(ctx context.Context, t *testing.T, server *rest.Server, path string) (int, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example"+path, nil)
	expect.NoError(t, err)
	req.Header.Set("Authorization", "Bearer secret")
	resp, err := server.RoundTrip(req)
	expect.NoError(t, err)
	expect.NoError(t, resp.Body.Close())
	return resp.StatusCode, resp.Header
}

func TestAFixedSegmentGoesBeforeAParameter(t *testing.T) {
	server := newServer(t)
	for _, pattern := range []string{"/volumes/{id}", "/volumes/types", "/volumes/{id}/actions", "/volumes/snapshots/{id}"} {
		server.Handle(http.MethodGet, pattern, func(r *rest.Request) rest.Answer {
			return rest.Answer{Status: http.StatusOK, Header: http.Header{"Found": {r.Route + " " + r.PathValue("id")}}}
		})
	}
	for path, want := range map[string]string{
		"/volumes/7":                 "/volumes/{id} 7",
		"/volumes/types":             "/volumes/types ",
		"/volumes/7/actions":         "/volumes/{id}/actions 7",
		"/volumes/snapshots/7":       "/volumes/snapshots/{id} 7",
		"/volumes/snapshots/actions": "/volumes/snapshots/{id} actions",
		"/volumes/":                  "",
		"/volumes//actions":          "",
		"/volumes/7/":                "",
	} {
		status, header := get(t.Context(), t, server, path)
		if got := header.Get("Found"); got != want || (status == http.StatusOK) != (want != "") {
			t.Errorf("GET %s = %d, served by %q, want %q", path, status, got, want)
		}
	}
}

// In memory, too, a client learns that a request has a connection before the server has it: what has one by the end of a lease is waited for.
func TestARequestInMemoryHasAConnectionBeforeItIsServed(t *testing.T) {
	var order []string
	server := newServer(t)
	server.Handle(http.MethodGet, "/volumes", func(*rest.Request) rest.Answer {
		order = append(order, "served")
		return rest.Answer{Status: http.StatusOK}
	})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { order = append(order, "connected") },
	})
	get(ctx, t, server, "/volumes")
	if want := []string{"connected", "served"}; !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
}
