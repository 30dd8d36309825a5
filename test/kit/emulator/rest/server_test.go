package rest_test

import (
	"net/http"
	"net/http/httptrace"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
)

// In memory, too, a client learns that a request has a connection before the server has it: what has one by the end of a lease is waited for.
func TestARequestInMemoryHasAConnectionBeforeItIsServed(t *testing.T) {
	var order []string
	server := rest.New(rest.Config{
		Clock: clock.New(1), Token: "secret", RequestID: func() string { return "1" },
		Limited: func(http.Header, []rest.Budget, *rest.Budget) {},
		Problem: func(p rest.Problem, _ string) rest.Answer { return rest.Answer{Status: p.Status} },
	})
	t.Cleanup(server.Close)
	server.Handle(http.MethodGet, "/volumes", func(*rest.Request) rest.Answer {
		order = append(order, "served")
		return rest.Answer{Status: http.StatusOK}
	})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { order = append(order, "connected") },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/volumes", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	resp, err := server.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if want := []string{"connected", "served"}; !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
}
