package expect

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Answer is what a server has answered.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Fetch sends a request over a connection of its own and waits 20 s for the answer at most. The header is names and
// values in turn.
func Fetch(t testing.TB, method, url, body string, header ...string) Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, strings.NewReader(body))
	NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	NoError(t, err)
	return Answer{resp.StatusCode, resp.Header, string(text)}
}
