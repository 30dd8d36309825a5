package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

func TestAFixedSegmentGoesBeforeAParameter(t *testing.T) {
	server := rest.New(rest.Config{
		Clock: clock.New(1), Token: "secret", RequestID: func() string { return "1" },
		Limited: func(http.Header, []rest.Budget, *rest.Budget) {},
		Problem: func(p rest.Problem, _ string) rest.Answer { return rest.Answer{Status: p.Status} },
	})
	t.Cleanup(server.Close)
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
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.example"+path, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer secret")
		resp, err := server.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := resp.Header.Get("Found"); got != want || (resp.StatusCode == http.StatusOK) != (want != "") {
			t.Errorf("GET %s = %d, served by %q, want %q", path, resp.StatusCode, got, want)
		}
	}
}
