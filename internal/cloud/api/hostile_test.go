package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"unicode"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// P3: an answer that redirects takes the token nowhere.
func TestARedirectTakesTheTokenNowhere(t *testing.T) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	for _, code := range []int{300, 301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", elsewhere.URL+"/it")
				w.WriteHeader(code)
			}))
			defer home.Close()
			c := client(api.DefaultTransport())
			c.Endpoint = home.URL
			if err := c.Do(t.Context(), api.Request{Method: "GET", Path: "/it"}, nil); fault.Of(err) != fault.Unavailable {
				t.Errorf("a read ends with %v, want %q", err, fault.Unavailable)
			}
			w := ops.NewWrite(t.Context(), budget.Write)
			if err := c.Do(t.Context(), api.Request{Method: "DELETE", Path: "/it", Write: w, NoContent: true}, nil); err == nil {
				t.Error("a write that is redirected succeeds")
			}
		})
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

// endless is a body without an end.
type endless struct{ read *atomic.Int64 }

func (e endless) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	return len(p), nil
}

// An answer without an end is an error when it exceeds its bound: 4 MiB, or 64 KiB of a refusal.
func TestAnAnswerWithoutEndIsAnError(t *testing.T) {
	for status, limit := range map[int]int64{200: 4 << 20, 422: 64 << 10, 503: 64 << 10} {
		var read atomic.Int64
		c := client(cloudtest.RoundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(endless{&read})}, nil
		}))
		var into struct{}
		if err := c.Do(t.Context(), api.Request{Method: "GET", Path: "/it"}, &into); err == nil {
			t.Errorf("status %d without an end succeeds", status)
		}
		if n := read.Load(); n > limit+4096 {
			t.Errorf("%d bytes of an answer with status %d were read, want max. %d", n, status, limit)
		}
	}
}

// However many answers come at once, 16 of them are read, and the others wait for as long as their calls last.
func TestAnswersAreReadOneAfterAnother(t *testing.T) {
	var open, most atomic.Int64
	release := make(chan struct{})
	c := client(cloudtest.RoundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Body: &held{release: release, open: &open, most: &most, text: strings.NewReader("{}")},
		}, nil
	}))
	const calls = 40
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make(chan error, calls)
	for range calls {
		go func() {
			var into struct{}
			errs <- c.Do(ctx, api.Request{Method: "GET", Path: "/it"}, &into)
		}()
	}
	for open.Load() < 16 {
		runtime.Gosched()
	}
	cancel() // ends those that wait, and their errors are first
	for range calls - 16 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("a call that waited for its turn ends with %v", err)
		}
	}
	close(release)
	for range 16 {
		<-errs
	}
	if n := most.Load(); n != 16 {
		t.Errorf("%d answers were read at once, want 16", n)
	}
	var into struct{}
	if err := c.Do(t.Context(), api.Request{Method: "GET", Path: "/it"}, &into); err != nil {
		t.Errorf("a call after these = %v", err)
	}
}

// held is a body whose first byte comes when it is released.
type held struct {
	release    chan struct{}
	open, most *atomic.Int64
	text       io.Reader
	read       bool
}

func (h *held) Read(p []byte) (int, error) {
	if !h.read {
		h.read = true
		if n := h.open.Add(1); n > h.most.Load() {
			h.most.Store(n)
		}
		<-h.release
	}
	return h.text.Read(p)
}

func (h *held) Close() error {
	h.open.Add(-1)
	return nil
}

// An answer that stops in the middle occupies a call until the call's own end, and no longer.
func TestAnAnswerThatStopsEndsWithItsCall(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"n":`)
		_ = http.NewResponseController(w).Flush()
		close(began)
		<-release
	}))
	defer home.Close()
	defer close(release)
	c := client(api.DefaultTransport())
	c.Endpoint = home.URL
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		var into struct{ N int }
		ended <- c.Do(ctx, api.Request{Method: "GET", Path: "/it"}, &into)
	}()
	<-began
	cancel()
	if err := <-ended; fault.Of(err) != fault.Unavailable {
		t.Errorf("the read ends with %v, want %q", err, fault.Unavailable)
	}
}

// Only the answer to a request tells that its object does not exist: a proxy's 404 has no form of the API.
func TestOnlyA404OfTheCloudIsNotFound(t *testing.T) {
	for name, tc := range map[string]struct {
		base http.RoundTripper
		want bool
	}{
		"a 404":                   {answers(404, "application/json", `{"id":"not_found","message":"none"}`), true},
		"a proxy's 404":           {answers(404, "text/html", "<html>"), false},
		"a gateway's 404 in JSON": {answers(404, "application/json", `{"message":"no Route matched with those values","request_id":"r"}`), false},
		"a refusal":               {answers(422, "application/json", `{"id":"","message":"busy"}`), false},
		"an answer":               {answers(200, "application/json", `{}`), false},
		"no connection":           {fails(io.EOF), false},
	} {
		var into struct{}
		if err := client(tc.base).Do(t.Context(), api.Request{Method: http.MethodGet, Path: "/it"}, &into); api.NotFound(err) != tc.want {
			t.Errorf("%s: NotFound(%v) = %v, want %v", name, err, !tc.want, tc.want)
		}
	}
}

// Only the cloud can tell that the token or a quota is the reason: a proxy's 401 or 403 blames neither.
func TestOnlyTheCloudDeniesAccess(t *testing.T) {
	for name, tc := range map[string]struct {
		base        http.RoundTripper
		read, write fault.Kind
	}{
		"a refusal":               {answers(403, "application/json", `{"id":"Forbidden","message":"no"}`), fault.Denied, fault.Denied},
		"a proxy's 401":           {answers(401, "text/html", "<html>"), fault.Unavailable, fault.Uncertain},
		"a proxy's 403":           {answers(403, "text/html", "<html>limit"), fault.Unavailable, fault.Uncertain},
		"a gateway's 403 in JSON": {answers(403, "application/json", `{"message":"no consumer","request_id":"r"}`), fault.Unavailable, fault.Uncertain},
	} {
		t.Run(name, func(t *testing.T) {
			c := client(tc.base)
			c.Kind = func(*api.Answer) fault.Kind { return fault.Denied }
			ends(t, c, tc.read, tc.write)
		})
	}
}

// A 429 is about the budget where the cloud has no other meaning of it.
func TestWithoutThrottledEach429IsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		c := client(cloudtest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				return answers(429, "application/json", `{"message":"slow down"}`)(r)
			}
			return answers(200, "application/json", `{}`)(r)
		}))
		c.Throttled = nil
		var into struct{}
		if err := c.Do(t.Context(), api.Request{Method: http.MethodGet, Path: "/it"}, &into); err != nil || sent != 2 {
			t.Errorf("Do = %v after %d requests, want success after 2", err, sent)
		}
	})
}

// What the cloud says reaches logs and terminals: it steers none.
func TestTheWordsOfACloudSteerNoTerminal(t *testing.T) {
	c := client(answers(400, "application/json", `{"id":"","message":"no\u001b]0;x\u0007","request_id":"id\u001b[2J\u0000\u202e"}`))
	a := api.AnswerOf(c.Do(t.Context(), api.Request{Method: http.MethodGet, Path: "/it"}, nil))
	for _, r := range a.RequestID + a.Words + a.Error() {
		if !unicode.IsPrint(r) {
			t.Errorf("the answer has %U in %q", r, a.Error())
		}
	}
}
