package api_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// answers answers every request in one way.
func answers(status int, kind, body string) cloudtest.RoundTripper {
	return func(r *http.Request) (*http.Response, error) { return cloudtest.Answer(r, status, kind, body), nil }
}

func fails(err error) cloudtest.RoundTripper {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func client(base http.RoundTripper) *api.Client {
	return &api.Client{
		Endpoint: "https://api.example", Base: base, Token: func() (string, error) { return "the-token", nil },
		Governor:  budget.New(budget.Config{}),
		Route:     func(path string) string { return path },
		Throttled: func(api.Request, *http.Response, *api.Answer) bool { return false }, Kind: (*api.Answer).Kind,
	}
}

func TestEachOutcomeOfARequestBecomesItsKind(t *testing.T) {
	const json = "application/json"
	tests := map[string]struct {
		base        http.RoundTripper
		read, write fault.Kind
	}{
		"an answer":                               {answers(200, json, `{"n":1}`), fault.None, fault.None},
		"a refusal":                               {answers(422, json, `{"id":"","message":"no"}`), fault.InvalidArgument, fault.InvalidArgument},
		"a refusal because of another change":     {answers(423, json, `{"id":"","message":"locked"}`), fault.Busy, fault.Busy},
		"a failure of the cloud":                  {answers(500, json, `{}`), fault.Unavailable, fault.Uncertain},
		"a gateway that gave up":                  {answers(504, "text/html", "<html>"), fault.Unavailable, fault.Uncertain},
		"a timeout of the cloud":                  {answers(408, "", ""), fault.Unavailable, fault.Uncertain},
		"a page of a proxy in place of a refusal": {answers(404, "text/html", "<html>"), fault.Unavailable, fault.Uncertain},
		"a redirect":                              {answers(302, "", ""), fault.Unavailable, fault.Unavailable},
		"an answer that is not JSON":              {answers(200, "text/html", `{"n":1}`), fault.Unavailable, fault.Uncertain},
		"an answer that is cut":                   {answers(200, json, `{"n":`), fault.Unavailable, fault.Uncertain},
		"an answer that was lost":                 {fails(&url.Error{Op: "Post", URL: "u", Err: io.EOF}), fault.Unavailable, fault.Uncertain},
		"no connection, so nothing was sent":      {fails(&net.OpError{Op: "dial", Err: io.EOF}), fault.Unavailable, fault.Unavailable},
		"a connection that broke while it waited": {fails(&net.OpError{Op: "read", Err: io.EOF}), fault.Unavailable, fault.Uncertain},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { ends(t, client(tc.base), tc.read, tc.write) })
	}
}

// ends fails the test unless a read and a write have these kinds.
func ends(t *testing.T, c *api.Client, read, write fault.Kind) {
	t.Helper()
	var into struct{ N int }
	err := c.Do(t.Context(), api.Request{Doing: "read it", Method: "GET", Path: "/it"}, &into)
	expect.Kind(t, "a read", err, read)
	w := ops.NewWrite(t.Context(), budget.Write)
	err = c.Do(t.Context(), api.Request{Doing: "change it", Method: "POST", Path: "/it", Write: w}, &into)
	expect.Kind(t, "a write", err, write)
}

// A1: what must be sent soon after a read is not sent on a connection that comes too late, nor repeated on one by the transport. Its answer
// may take its time.
func TestAWriteThatFindsNoConnectionInTimeWasNotSent(t *testing.T) {
	for name, tc := range map[string]struct {
		dial, answer time.Duration
		closed       bool // the server closes the connection of an earlier request
		want         error
		arrived      int32
	}{
		"a late connection":                     {dial: 10 * time.Second, want: ops.ErrLate},
		"a late connection in place of another": {dial: 10 * time.Second, closed: true, want: fault.Uncertain, arrived: 1},
		"a late answer":                         {dial: time.Second, answer: 10 * time.Second, arrived: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var arrived atomic.Int32
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					arrived.Add(1)
					time.Sleep(tc.answer)
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{}`)
				})}
				conns := make(listener)
				go func() { _ = server.Serve(conns) }()
				var closed atomic.Bool
				base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
					if closed.Load() == tc.closed {
						time.Sleep(tc.dial)
						closed.Store(false)
					}
					client, server := net.Pipe()
					conns <- server
					return closable{client, &closed}, nil
				}}
				c := client(base)
				c.Endpoint = "http://api.example"
				send := func() error {
					w := ops.NewWrite(t.Context(), budget.Write)
					w.Before = time.Now().Add(2 * time.Second)
					var into struct{}
					return c.Do(t.Context(), api.Request{Doing: "change it", Method: "POST", Path: "/it", Write: w}, &into)
				}
				if tc.closed {
					must(t, send())
					closed.Store(true)
				}
				if err := send(); !errors.Is(err, tc.want) {
					t.Errorf("Do = %v, want %v", err, tc.want)
				}
				time.Sleep(time.Minute)
				if n := arrived.Load(); n != tc.arrived {
					t.Errorf("%d requests arrived, want %d", n, tc.arrived)
				}
				base.CloseIdleConnections()
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A1: a write whose time ends when it just got its connection may have been written, so its outcome is unknown.
func TestAWriteThatIsLateOnItsConnectionMayHaveBeenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(cloudtest.RoundTripper(func(r *http.Request) (*http.Response, error) { // as net/http does
			<-r.Context().Done()
			httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
			return nil, context.Cause(r.Context())
		}))
		w := ops.NewWrite(t.Context(), budget.Write)
		w.Before = time.Now().Add(2 * time.Second)
		err := c.Do(t.Context(), api.Request{Doing: "change it", Method: "POST", Path: "/it", Write: w}, nil)
		if fault.Of(err) != fault.Uncertain || errors.Is(err, ops.ErrLate) {
			t.Errorf("Do = %v, want %q", err, fault.Uncertain)
		}
	})
}

// closable is a connection that the server may have closed: nothing can be written to it.
type closable struct {
	net.Conn

	closed *atomic.Bool
}

func (c closable) Write(p []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// listener gives a server the connections that it is sent.
type listener chan net.Conn

func (l listener) Accept() (net.Conn, error) {
	c, open := <-l
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l listener) Close() error {
	close(l)
	return nil
}

func (listener) Addr() net.Addr { return &net.UnixAddr{} }

func TestAWriteThatTheBudgetHoldsBackWasNotSent(t *testing.T) {
	c := client(answers(200, "application/json", "{}"))
	c.Governor = budget.New(budget.Config{Windows: []budget.Window{{Calls: 0, Per: 1 << 40}}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.Do(ctx, api.Request{Doing: "change it", Method: "POST", Path: "/it", Write: ops.NewWrite(ctx, budget.Write)}, nil)
	if fault.Of(err) != fault.Unavailable || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %q with the context's error", err, fault.Unavailable)
	}
}

func TestAnErrorRepeatsTheCloudsWordsInOneShortLine(t *testing.T) {
	for _, tc := range []struct{ body, want string }{
		{
			`{"id":"x","message":"Droplet already\n has a pending event","request_id":"r-1"}`,
			`change it: invalid request: the cloud answers 422 x "Droplet already has a pending event" (request r-1)`,
		},
		{"<html>" + strings.Repeat("x ", 5000), `"<html>x x`},
	} {
		c := client(answers(422, "application/json", tc.body))
		err := c.Do(t.Context(), api.Request{Doing: "change it", Method: "POST", Path: "/it", Write: ops.NewWrite(t.Context(), budget.Write)}, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 500 {
			t.Errorf("the error is %.600v, want %q in it", err, tc.want)
		}
	}
}

// A request takes from the budget of its class and from that of all, and waits for both.
func TestARequestTakesFromBothOfItsBudgets(t *testing.T) {
	one := func() *budget.Governor {
		return budget.New(budget.Config{Windows: []budget.Window{{Calls: 1, Per: 1 << 40}}})
	}
	endless := budget.New(budget.Config{})
	for name, budgets := range map[string][2]*budget.Governor{"that of all is spent": {one(), endless}, "that of its class is spent": {endless, one()}} {
		t.Run(name, func(t *testing.T) {
			c := client(answers(200, "application/json", `{"n":1}`))
			c.Governor, c.Class = budgets[0], func(api.Request) *budget.Governor { return budgets[1] }
			var into struct{ N int }
			must(t, c.Do(t.Context(), api.Request{Method: "GET", Path: "/it"}, &into))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := c.Do(ctx, api.Request{Method: "GET", Path: "/it"}, &into); fault.Of(err) != fault.Unavailable {
				t.Errorf("the second request ends with %v, want %q", err, fault.Unavailable)
			}
		})
	}
}

func TestARefusalInTheAPIsOwnForm(t *testing.T) {
	c := client(answers(422, "application/json", `{"why":"no room"}`))
	c.Refusal = func(body []byte) (api.Answer, bool) {
		return api.Answer{Words: "no room", Fields: []string{"size"}}, strings.Contains(string(body), "why")
	}
	a := api.AnswerOf(c.Do(t.Context(), api.Request{Method: "GET", Path: "/it"}, nil))
	if a == nil || a.Words != "no room" || len(a.Fields) != 1 || a.Fields[0] != "size" {
		t.Errorf("the refusal is read as %+v", a)
	}
}

// An answer is about the budget that has the limit which it names, and one of an unknown limit about the class.
func TestAnAnswerIsAboutTheBudgetOfItsLimit(t *testing.T) {
	for limit, spent := range map[string]string{"5": "all", "9": "class", "7": "class"} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := budget.New(budget.Config{Windows: []budget.Window{{Calls: 5, Per: time.Hour}}})
				class := budget.New(budget.Config{Windows: []budget.Window{{Calls: 9, Per: time.Hour, FromHeaders: true}}})
				base := answers(200, "application/json", `{"n":1}`)
				c := client(cloudtest.RoundTripper(func(r *http.Request) (*http.Response, error) {
					resp, err := base(r)
					resp.Header.Set("Ratelimit-Limit", limit)
					resp.Header.Set("Ratelimit-Remaining", "0")
					return resp, err
				}))
				c.Governor, c.Class = all, func(api.Request) *budget.Governor { return class }
				var into struct{ N int }
				must(t, c.Do(t.Context(), api.Request{Method: "GET", Path: "/it"}, &into))
				for name, g := range map[string]*budget.Governor{"all": all, "class": class} {
					began := time.Now()
					must(t, g.Acquire(t.Context(), budget.Detach))
					if waited := time.Since(began) > 0; waited != (name == spent) {
						t.Errorf("the budget of %s is spent: %v, want that of %s", name, waited, spent)
					}
				}
			})
		})
	}
}
