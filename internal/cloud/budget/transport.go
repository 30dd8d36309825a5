package budget

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// mostWords is how much of a refusal's body is read to see what kind it is.
const mostWords = 64 << 10

// Route is what a request counts as.
type Route struct {
	// Template is the path with names for ids, such as /v2/volumes/{id}: a label of metrics, so
	// there are few of them.
	Template string
	// Governor has the budget of the request. Nil: it is sent at once.
	Governor *Governor
	// Total, unless it is nil, has the budget of all requests where Governor has that of some of them. It
	// takes nothing from answers, since they speak of the narrower one.
	Total *Governor
}

// Transport sends requests when the budget allows it. It never repeats a request that may have been
// carried out: only one that was refused for want of budget, which proves that it was not, and whose
// body can be sent again. Every other answer and error is returned as it came; what a repeat is worth
// then is for the layers above to know.
//
// If the context ends before a request was sent, or sent again, the error carries fault.Unavailable
// and nothing was changed. An http.Client above must have no Timeout of its own: it would hide the
// error and count the waiting.
type Transport struct {
	// Base sends; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Route says what a request counts as. Nil: no budget, the path is not told.
	Route func(*http.Request) Route
	// Rate reads what an answer says about the budget; StandardRate suits most clouds and is used
	// if this is nil.
	Rate func(*http.Response) Rate
	// Refused reports whether an answer with status 429 is one of the budget, and not a rule about
	// what was asked for, which a repeat would only meet again. body is at most 64 KiB of the
	// answer's. Nil: every 429 is.
	Refused func(resp *http.Response, body []byte) bool
	// Metrics may be nil.
	Metrics *Metrics
}

// RoundTrip sends the request.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var route Route
	if t.Route != nil {
		route = t.Route(req)
	}
	attempt := req
	for {
		if err := acquire(route, req); err != nil {
			if attempt.Body != nil {
				_ = attempt.Body.Close() // as the base would have done
			}
			return nil, err
		}
		resp, again, err := t.send(attempt, route)
		if !again || err != nil {
			return resp, err
		}
		if attempt, err = rewound(req); err != nil {
			return nil, err
		}
	}
}

// acquire waits for the budget of the request.
func acquire(route Route, req *http.Request) error {
	p := PriorityOf(req.Context())
	if p == Default && (req.Method == http.MethodGet || req.Method == http.MethodHead) {
		p = Read
	}
	for _, g := range []*Governor{route.Governor, route.Total} {
		if g == nil {
			continue
		}
		if err := g.Acquire(req.Context(), p); err != nil {
			return fmt.Errorf("%s %s was not carried out: %w", req.Method, route.Template, err)
		}
	}
	return nil
}

// send makes one attempt and reports whether there should be another one.
func (t *Transport) send(req *http.Request, route Route) (resp *http.Response, again bool, err error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	resp, err = base.RoundTrip(req)
	if err != nil {
		t.Metrics.requested(route.Template, req.Method, 0)
		route.Governor.learn(Rate{})
		return nil, false, err
	}
	t.Metrics.requested(route.Template, req.Method, resp.StatusCode)
	rate := StandardRate
	if t.Rate != nil {
		rate = t.Rate
	}
	r := rate(resp)
	if resp.StatusCode == http.StatusTooManyRequests {
		body := peek(resp)
		r.Refused = t.Refused == nil || t.Refused(resp, body)
		r.Words = words(resp, body)
	}
	route.Governor.learn(r)
	again = r.Refused && route.Governor != nil && (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil)
	if again {
		_ = resp.Body.Close()
	}
	return resp, again, nil
}

// learn is Learn for a route that may have no Governor.
func (g *Governor) learn(r Rate) {
	if g != nil {
		g.Learn(r)
	}
}

// rewound returns the request ready to be sent once more.
func rewound(req *http.Request) (*http.Request, error) {
	again := req.Clone(req.Context())
	if req.GetBody == nil {
		return again, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("send %s %s again: %w", req.Method, req.URL.Path, err)
	}
	again.Body = body
	return again, nil
}

// peek reads the beginning of the body and puts it back.
func peek(resp *http.Response) []byte {
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostWords))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failing{err} // whoever reads on gets the same error
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), resp.Body}
	return body
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// words is what a refusal says, in one short line.
func words(resp *http.Response, body []byte) string {
	text := strings.Join(strings.Fields(string(body)), " ")
	return fmt.Sprintf("%s %.200s", resp.Status, text)
}

// StandardRate reads ratelimit-limit, -remaining and -reset (with or without "X-", the reset as
// seconds of the epoch or from now) and retry-after (seconds or a date).
func StandardRate(resp *http.Response) Rate {
	number := func(name string) (int, bool) {
		value := resp.Header.Get("Ratelimit-" + name)
		if value == "" {
			value = resp.Header.Get("X-Ratelimit-" + name)
		}
		n, err := strconv.Atoi(strings.TrimSpace(value))
		return n, err == nil && n >= 0
	}
	now := time.Now()
	var r Rate
	limit, limited := number("Limit")
	if remaining, ok := number("Remaining"); ok && limited {
		r.Limit, r.Remaining = limit, remaining
	}
	switch reset, ok := number("Reset"); {
	case !ok:
	case reset > 1e9:
		r.Reset = time.Unix(int64(reset), 0)
	default:
		r.Reset = now.Add(time.Duration(reset) * time.Second)
	}
	after := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(after); err == nil && seconds > 0 {
		r.RetryAfter = time.Duration(min(seconds, int(mostTrusted.Seconds()))) * time.Second
	} else if date, err := http.ParseTime(after); err == nil && date.After(now) {
		r.RetryAfter = date.Sub(now)
	}
	return r
}
