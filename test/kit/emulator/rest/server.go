// Package rest is what the emulated HTTP APIs have in common: routes, bearer tokens, rate limits,
// faults, lost answers, counters, and a hook that sees each exchange. What an answer looks like is the
// business of the cloud that uses it.
package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// Effect is what an armed fault does to a request.
type Effect = faults.Effect

// Answer is an answer before it is written.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	// Wait is emulated time that passes between the effect and the answer.
	Wait time.Duration
	// Sent, if there is one, is called when the answer is about to leave, after Wait.
	Sent func()
}

// Problem is a refusal that the server itself gives, for the cloud to put into its own words.
type Problem struct {
	Status      int
	ID, Message string
}

// Config says how a cloud differs.
type Config struct {
	Clock *clock.Clock
	// Token that requests must bear.
	Token string
	// Seed of what is left to chance.
	Seed uint64
	// Problem turns a refusal into the cloud's answer.
	Problem func(p Problem, requestID string) Answer
	// Limited adds the cloud's rate headers; refused is the limit that was exceeded, or nil.
	Limited func(header http.Header, all []Budget, refused *Budget)
	// Headers, if there is one, adds what the cloud says with each answer; known: the request has the token.
	Headers func(r *Request, answer *Answer, known bool)
	// Class, if there is one, says which class of requests one belongs to, for the limits of classes.
	Class func(r *Request) string
	// RequestID makes the id of the next request.
	RequestID func() string
	// Decide, if there is one, says what happens to a request that no armed fault struck.
	Decide func(r *Request) Effect
	// Check is shown every exchange of the API that got an answer.
	Check func(r *Request, answer Answer)
}

// Server serves one emulated API, on a listener or in memory.
type Server struct {
	*Frame

	cfg    Config
	routes []*route
	limits limits
}

// New returns a server without routes.
func New(cfg Config) *Server {
	return &Server{Frame: NewFrame(cfg.Clock), cfg: cfg, limits: limits{clock: cfg.Clock}}
}

// Handle adds a route, such as "GET" and "/v2/volumes/{volume_id}".
func (s *Server) Handle(method, pattern string, handler Handler) {
	s.routes = append(s.routes, &route{method: method, pattern: pattern, segments: splitPath(pattern), handler: handler})
}

// SetLimits replaces the rate limits and forgets what was counted; none means no limit.
func (s *Server) SetLimits(all ...Limit) { s.limits.set(all) }

// Limits returns the rate limits.
func (s *Server) Limits() []Limit {
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	var all []Limit
	for _, w := range s.limits.windows {
		all = append(all, w.Limit)
	}
	return all
}

// errLost: the connection is cut instead of an answer.
var errLost = errors.New("connection lost")

// mostBody is more than any request of these APIs has.
const mostBody = 1 << 20

// ServeHTTP answers a request, or cuts its connection.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := s.exchange(r)
	if err != nil {
		if conn, _, hijackErr := http.NewResponseController(w).Hijack(); hijackErr == nil {
			conn.Close()
		}
		return
	}
	for key, values := range answer.Header {
		w.Header()[key] = values
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // a client that went away needs no answer
}

// RoundTrip answers a request in memory: the server as an http.RoundTripper. As one with connections does, it tells the request's
// httptrace that there is one before the request leaves.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	type result struct {
		answer Answer
		err    error
	}
	done := make(chan result, 1)
	// The client's context ends the client's wait, never what the cloud does.
	own := r.Clone(context.WithoutCancel(r.Context()))
	if r.Body != nil {
		body, err := io.ReadAll(io.LimitReader(r.Body, mostBody))
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
		own.Body = io.NopCloser(bytes.NewReader(body))
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	go func() {
		answer, err := s.exchange(own)
		done <- result{answer, err}
	}()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case got := <-done:
		if got.err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		return &http.Response{
			Status: http.StatusText(got.answer.Status), StatusCode: got.answer.Status,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: got.answer.Header, Body: io.NopCloser(bytes.NewReader(got.answer.Body)),
			ContentLength: int64(len(got.answer.Body)), Request: r,
		}, nil
	}
}

// exchange takes a request through everything that can happen to it.
func (s *Server) exchange(r *http.Request) (Answer, error) {
	if !s.Enter() {
		return Answer{}, errLost
	}
	defer s.Leave()
	log := Exchange{Method: r.Method, Route: "(unknown)", Path: r.URL.RequestURI(), Start: time.Now()}
	request := &Request{Request: r, ID: s.cfg.RequestID()}
	found := s.find(r)
	if found != nil {
		log.Route, request.Route = found.pattern, found.pattern
	}
	answer, err := s.answer(request, found, &log)
	if err == nil {
		log.Status = answer.Status
	}
	log.End = time.Now()
	s.Add(log.Method+" "+log.Route, log, count(log))
	return answer, err
}

func (s *Server) answer(r *Request, found *route, log *Exchange) (Answer, error) {
	var err error
	if r.Request.Body != nil {
		if r.Body, err = io.ReadAll(io.LimitReader(r.Request.Body, mostBody)); err != nil {
			return Answer{}, errLost // the client went away in the middle of its request
		}
	}
	var budgets []Budget
	var refused *Budget
	known := r.Header.Get("Authorization") == "Bearer "+s.cfg.Token
	if known { // a limit is one of a token
		var class string
		if s.cfg.Class != nil {
			class = s.cfg.Class(r)
		}
		budgets, refused = s.limits.take(class)
	}
	var answer Answer
	switch {
	case !known:
		answer = s.cfg.Problem(Problem{Status: http.StatusUnauthorized}, r.ID)
	case refused != nil:
		answer = s.cfg.Problem(Problem{Status: http.StatusTooManyRequests}, r.ID)
	case found == nil:
		answer = s.cfg.Problem(Problem{Status: http.StatusNotFound}, r.ID)
	default:
		if answer, err = s.struck(r, found, log); err != nil {
			return Answer{}, err
		}
	}
	if answer.Header == nil {
		answer.Header = http.Header{}
	}
	answer.Header.Set("Date", s.cfg.Clock.Now().UTC().Format(http.TimeFormat))
	s.cfg.Limited(answer.Header, budgets, refused)
	if s.cfg.Headers != nil {
		s.cfg.Headers(r, &answer, known)
	}
	if s.cfg.Check != nil && found != nil {
		s.cfg.Check(r, answer)
	}
	return answer, nil
}

// struck answers a request, and lets an armed fault have its way with it.
func (s *Server) struck(r *Request, found *route, log *Exchange) (Answer, error) {
	effect := Strike(s.Frame, log, r.Body, r, s.cfg.Decide)
	r.Effect = effect
	roll := clock.Roll(s.cfg.Seed, "delay", r.Method, r.URL.RequestURI(), string(r.Body))
	s.Wait(effect.Delay.Pick(roll))
	if effect.Lost == faults.LostBefore {
		return Answer{}, errLost
	}
	var answer Answer
	if effect.Status != 0 {
		answer = s.cfg.Problem(Problem{Status: effect.Status, ID: effect.ID, Message: effect.Message}, r.ID)
		for key, value := range effect.Header {
			answer.Header.Set(key, value)
		}
	} else {
		answer = found.handler(r)
	}
	s.Wait(answer.Wait + effect.DelayAnswer.Pick(roll))
	if answer.Sent != nil {
		answer.Sent()
	}
	if effect.Lost == faults.LostAfter {
		return Answer{}, errLost
	}
	return answer, nil
}
