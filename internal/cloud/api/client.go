// Package api sends requests to a cloud's API over HTTP and JSON: one request at a time within the API budget, with answers of bounded
// length that must have the required content, and with the kinds of refusals.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/telemetry"
)

// Client sends requests to one API.
type Client struct {
	// Endpoint is the API's address without a path.
	Endpoint string
	// Base is the transport; the Client wraps it in Bounded.
	Base http.RoundTripper
	// Token returns the API token. It is called for each request, so that a new token is used at once.
	Token func() (string, error)
	// UserAgent is sent with each request; "": Go's default.
	UserAgent string
	// Governor is the budget of all requests.
	Governor *budget.Governor
	// Class returns a second budget for some requests. The rate-limit headers of an answer count for the budget that has their limit, or
	// else for the class. Nil: there is one budget.
	Class func(Request) *budget.Governor
	// Route returns a path without ids, for metrics.
	Route func(path string) string
	// Throttled reports whether a 429 is about the budget, and not about the requested change. Nil: each is.
	Throttled func(Request, *http.Response, *Answer) bool
	// Refusal parses the body of a refusal; false: it does not have the API's form. Nil: {"id":..,"message":..}.
	Refusal func(body []byte) (Answer, bool)
	// Kind maps refusals to kinds, such as Answer.Kind.
	Kind    func(*Answer) fault.Kind
	Metrics *budget.Metrics
	// Log gets a debug line for each request; nil: none.
	Log *zap.Logger
}

// Request is one request.
type Request struct {
	// Doing is the prefix of errors, such as "read volume 1"; "": none.
	Doing  string
	Method string
	Path   string
	Query  url.Values
	// Filter is sent as X-Filter; "": none.
	Filter string
	// Body is sent as JSON; nil: none.
	Body any
	// Write is set for a request that changes something; a read has a Priority.
	Write    *ops.Write
	Priority budget.Priority
	// Received is called with the headers of the answer; may be nil.
	Received *http.Header
	// NoContent: only status 204 is success.
	NoContent bool
}

// Do sends a request within the budget and decodes the answer. It repeats the request only if the cloud refused it because of the budget.
// An error of a read has the answer's kind or fault.Unavailable. An error of a write is fault.Uncertain unless nothing was changed.
func (c *Client) Do(ctx context.Context, r Request, into any) error {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = json.Marshal(r.Body); err != nil {
			return r.named(fmt.Errorf("%w: %w", fault.InvalidArgument, err))
		}
	}
	p := r.Priority
	switch {
	case r.Write != nil:
		p = r.Write.Priority
	case p == budget.Default:
		p = budget.Read
	}
	for {
		if err := c.acquire(ctx, r, p); err != nil {
			return r.named(err)
		}
		again, err := c.try(ctx, r, body, into)
		if !again {
			return c.explained(r, err)
		}
	}
}

// acquire waits for the budget of a request.
func (c *Client) acquire(ctx context.Context, r Request, p budget.Priority) error {
	wait := (*budget.Governor).Acquire
	if r.Write != nil && !r.Write.Before.IsZero() {
		wait = (*budget.Governor).AcquireNext
	}
	if c.Class != nil {
		if err := wait(c.Class(r), ctx, p); err != nil {
			return err
		}
	}
	return wait(c.Governor, ctx, p)
}

// learn passes the rate-limit headers of an answer to their budget.
func (c *Client) learn(r Request, rate budget.Rate) {
	about := c.Governor
	if c.Class != nil && (c.Class(r).Has(rate.Limit) || !c.Governor.Has(rate.Limit)) {
		about = c.Class(r)
	}
	about.Learn(rate)
}

// try sends a request once. again: the cloud refused it because of the budget.
func (c *Client) try(ctx context.Context, r Request, body []byte, into any) (again bool, err error) {
	token, err := c.Token()
	if err != nil {
		return false, fmt.Errorf("%w: the API token cannot be read: %w", fault.Unavailable, err)
	}
	if r.Write != nil {
		ctx, err = depart(ctx, r.Write)
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ops.AnswerTimeout)
		defer cancel()
	}
	if err != nil {
		return false, err
	}
	connections := 0
	ctx = traced(ctx, r.Write, &connections)
	began := time.Now()
	resp, err := c.send(ctx, r, body, token)
	connected := connections > 0
	for ; connections > 1; connections-- {
		c.Metrics.Requested(c.Route(r.Path), r.Method, "error")
	}
	if err != nil {
		c.sent(ctx, r, began, "error")
		c.learn(r, budget.Rate{})
		switch cause := context.Cause(ctx); {
		case connected && errors.Is(cause, ops.ErrLate):
			err = errors.New("it got its connection late, and may have been written")
		case cause != nil:
			err = cause
		}
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	c.sent(ctx, r, began, fmt.Sprint(resp.StatusCode), zap.String("cloud_request", Line(resp.Header.Get(requestIDHeader), token)))
	if r.Received != nil {
		*r.Received = resp.Header
	}
	rate := budget.StandardRate(resp)
	if resp.StatusCode == http.StatusTooManyRequests {
		answer, _ := c.answerOf(resp, token)
		if c.Throttled != nil && !c.Throttled(r, resp, answer) {
			c.learn(r, rate)
			return false, answer
		}
		rate.Refused, rate.Words = true, answer.Error()
		c.learn(r, rate)
		if r.Write != nil {
			r.Write.NotApplied()
		}
		return true, nil
	}
	c.learn(r, rate)
	return false, quoted(c.read(resp, r, token, into), token)
}

// traced returns a context for a request that counts its connections. The transport repeats a read itself if the connection breaks, and a
// write if nothing of it was written: that write waits for another connection no longer than for its first.
func traced(ctx context.Context, w *ops.Write, connections *int) context.Context {
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { *connections++ }}
	if w != nil {
		trace.GetConn = func(string) { w.Connecting() }
		trace.GotConn = func(httptrace.GotConnInfo) {
			*connections++
			w.Connected()
		}
	}
	return httptrace.WithClientTrace(ctx, trace)
}

// sent counts and logs a request that was sent. Its code is that of the answer.
func (c *Client) sent(ctx context.Context, r Request, began time.Time, code string, more ...zap.Field) {
	route := c.Route(r.Path)
	c.Metrics.Requested(route, r.Method, code)
	if c.Log != nil {
		c.Log.Debug("api request", append([]zap.Field{
			telemetry.RequestField(ctx), zap.String("verb", r.Method), zap.String("route", route), zap.String("code", code),
			zap.Duration("duration", time.Since(began)),
		}, more...)...)
	}
}

func (c *Client) send(ctx context.Context, r Request, body []byte, token string) (*http.Response, error) {
	address := strings.TrimRight(c.Endpoint, "/") + r.Path
	if len(r.Query) > 0 {
		address += "?" + r.Query.Encode()
	}
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, address, reader)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	if r.Filter != "" {
		req.Header.Set("X-Filter", r.Filter)
	}
	if c.UserAgent != "" {
		req.Header.Set("User-Agent", c.UserAgent)
	}
	// RoundTrip follows no redirect, so the token is never sent to another address.
	resp, err := Bounded{c.Base}.RoundTrip(req)
	return resp, quoted(err, token)
}

// read reads the answer to a request.
func (c *Client) read(resp *http.Response, r Request, token string, into any) error {
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); {
	case resp.StatusCode >= 300 || resp.StatusCode < 200:
		answer, ok := c.answerOf(resp, token)
		if !ok && (answer.Refused() || answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden) {
			return fmt.Errorf("an answer with status %d that is not the cloud's: %q", answer.Status, answer.Words)
		}
		return answer
	case r.NoContent && resp.StatusCode == http.StatusNoContent:
		return nil
	case r.NoContent:
		return fmt.Errorf("the answer has status %d, only 204 says that it was done", resp.StatusCode)
	case kind != "application/json":
		return fmt.Errorf("the answer with status %d is not JSON but %.40q", resp.StatusCode, Line(resp.Header.Get("Content-Type"), token))
	}
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	return nil
}

// explained classifies the failure of a request.
func (c *Client) explained(r Request, err error) error {
	answer := AnswerOf(err)
	var kind fault.Kind
	switch {
	case err == nil:
		return nil
	case answer != nil && r.Write != nil && (answer.Status >= http.StatusInternalServerError || answer.Status == http.StatusRequestTimeout):
		kind = fault.Uncertain
	case answer != nil:
		kind = c.Kind(answer)
	case errors.Is(err, fault.Unavailable):
		return r.named(err) // nothing was sent
	case r.Write == nil || neverSent(err):
		kind = fault.Unavailable
	default:
		kind = fault.Uncertain
	}
	return r.named(fmt.Errorf("%w: %w", kind, err))
}

// named prefixes an error with Request.Doing.
func (r Request) named(err error) error {
	if r.Doing == "" {
		return err
	}
	return fmt.Errorf("%s: %w", r.Doing, err)
}

// neverSent reports whether there was no connection, so that the request was not sent.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// DefaultTransport returns a transport with timeouts.
func DefaultTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = ops.AnswerTimeout
	t.MaxIdleConnsPerHost = 32 // one request stands for one change, and many are made at once
	// A lost connection of HTTP/2, which all requests share, is closed 45 s after the last answer, as in Kubernetes' own clients.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return t
}
