package budget_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A server answers requests from a list of answers, the last one for ever, and keeps what came.
type server struct {
	answers []string // "status body"
	header  http.Header
	came    []string // "METHOD body"
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	body := []byte{}
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	s.came = append(s.came, strings.TrimSpace(req.Method+" "+string(body)))
	answer := s.answers[min(len(s.came), len(s.answers))-1]
	var status int
	var text string
	if n, _ := fmt.Sscanf(answer, "%d %s", &status, &text); n < 2 {
		return nil, errors.New(answer)
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: s.header, Request: req,
		Body: io.NopCloser(strings.NewReader(text)),
	}, nil
}

// ask sends a request through a Transport over the server.
func (s *server) ask(ctx context.Context, t *budget.Transport, method string, body io.Reader) (string, error) {
	t.Base = s
	req, err := http.NewRequestWithContext(ctx, method, "http://cloud/v2/volumes/7", body)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, text), err
}

func routed(g *budget.Governor) func(*http.Request) budget.Route {
	return func(*http.Request) budget.Route {
		return budget.Route{Template: "/v2/volumes/{id}", Governor: g}
	}
}

func TestTransportRepeatsOnlyWhatWasNotCarriedOut(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	notRate := func(_ *http.Response, body []byte) bool { return !strings.HasPrefix(string(body), "rule") }
	tests := map[string]struct {
		method  string
		body    func() io.Reader
		answers []string
		free    bool // no budget
		want    string
		came    []string
	}{
		"an answer that is no refusal is returned": {"GET", nil, []string{"200 ok"}, false, "200 ok", []string{"GET"}},
		"a refused read is repeated":               {"GET", nil, []string{"429 no", "429 no", "200 ok"}, false, "200 ok", []string{"GET", "GET", "GET"}},
		"a refused write is repeated with its body": {"POST", func() io.Reader { return strings.NewReader("attach") },
			[]string{"429 no", "202 ok"}, false, "202 ok", []string{"POST attach", "POST attach"}},
		"a refused write whose body is gone is returned": {"POST", func() io.Reader { return io.MultiReader(strings.NewReader("attach")) },
			[]string{"429 no"}, false, "429 no", []string{"POST attach"}},
		"a refusal by a rule is returned":  {"POST", nil, []string{"429 rule"}, false, "429 rule", []string{"POST"}},
		"a long refusal is whole":          {"POST", nil, []string{"429 rule" + long}, false, "429 rule" + long, []string{"POST"}},
		"a server's failure is returned":   {"DELETE", nil, []string{"500 broken"}, false, "500 broken", []string{"DELETE"}},
		"a lost answer is returned":        {"DELETE", nil, []string{"connection reset"}, false, "", []string{"DELETE"}},
		"without a budget nothing repeats": {"GET", nil, []string{"429 no"}, true, "429 no", []string{"GET"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: tc.answers}
				tr := &budget.Transport{Refused: notRate}
				if !tc.free {
					tr.Route = routed(budget.New(budget.Config{}))
				}
				var body io.Reader
				if tc.body != nil {
					body = tc.body()
				}
				got, err := s.ask(t.Context(), tr, tc.method, body)
				if got != tc.want || (err != nil) != (tc.want == "") {
					t.Errorf("%.50s, %v, want %.50s", got, err, tc.want)
				}
				if fmt.Sprint(s.came) != fmt.Sprint(tc.came) {
					t.Errorf("the server got %v, want %v", s.came, tc.came)
				}
				if err != nil && fault.Of(err) != fault.None {
					t.Errorf("a lost answer = %v, want no kind: only the backend knows what it means", err)
				}
			})
		})
	}
}

func TestTransportEndsWithTheContextAndSaysThatNothingWasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []string{"429 API-rate-limit-exceeded"}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		body := &closes{Reader: strings.NewReader("x")}
		began := time.Now()
		_, err := s.ask(ctx, &budget.Transport{Route: routed(budget.New(budget.Config{}))}, http.MethodPost, strings.NewReader("x"))
		if fault.Of(err) != fault.Unavailable || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute ||
			!strings.Contains(err.Error(), "API-rate-limit-exceeded") || !strings.Contains(err.Error(), "/v2/volumes/{id}") {
			t.Errorf("%v after %s, want unavailable with the deadline, the route and the cloud's words after 1m", err, time.Since(began))
		}
		if n := len(s.came); n < 4 || n > 8 {
			t.Errorf("%d requests, want pauses that double", n)
		}
		if _, err := s.ask(ctx, &budget.Transport{Route: routed(budget.New(budget.Config{}))}, http.MethodPost, body); fault.Of(err) != fault.Unavailable || !body.closed {
			t.Errorf("a request after the end = %v, body closed %v, want unavailable and closed", err, body.closed)
		}
	})
}

// closes knows whether it was closed.
type closes struct {
	io.Reader
	closed bool
}

func (c *closes) Close() error { c.closed = true; return nil }

func TestTransportTakesThePriorityFromContextOrMethod(t *testing.T) {
	reg := prometheus.NewRegistry()
	metrics, err := budget.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	g := budget.New(budget.Config{Metrics: metrics, Windows: []budget.Window{{Calls: 100, Per: time.Minute}}})
	s := &server{answers: []string{"200 ok", "200 ok", "404 gone", "connection reset"}}
	tr := &budget.Transport{Route: routed(g), Metrics: metrics}
	_, _ = s.ask(t.Context(), tr, http.MethodGet, nil)
	_, _ = s.ask(t.Context(), tr, http.MethodPost, nil)
	_, _ = s.ask(budget.WithPriority(t.Context(), budget.Detach), tr, http.MethodPost, nil)
	_, _ = s.ask(budget.WithPriority(t.Context(), budget.List), tr, http.MethodGet, nil)
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"cloudblock_api_requests_total 200 GET /v2/volumes/{id}":   1,
		"cloudblock_api_requests_total 200 POST /v2/volumes/{id}":  1,
		"cloudblock_api_requests_total 404 POST /v2/volumes/{id}":  1,
		"cloudblock_api_requests_total error GET /v2/volumes/{id}": 1,
		"cloudblock_api_budget_wait_seconds read":                  1,
		"cloudblock_api_budget_wait_seconds write":                 1,
		"cloudblock_api_budget_wait_seconds detach":                1,
		"cloudblock_api_budget_wait_seconds list":                  1,
		"cloudblock_api_budget_left  1m0s":                         96,
	} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("unexpected metrics: %v", got)
	}
	if _, err := budget.NewMetrics(reg); err == nil {
		t.Error("NewMetrics twice on one registry = nil, want an error")
	}
}

// TestTransportOverASocket: bodies are really sent again by the real client.
func TestTransportOverASocket(t *testing.T) {
	var bodies []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		if len(bodies) < 2 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "slow down", http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, "done")
	}))
	defer srv.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: &budget.Transport{Base: base, Route: routed(budget.New(budget.Config{}))}}
	resp, err := client.Post(srv.URL, "application/json", strings.NewReader(`{"type":"attach"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || string(text) != "done" || len(bodies) != 2 || bodies[0] != bodies[1] {
		t.Errorf("answer %q, %v, the server got %q, want done and the same body twice", text, err, bodies)
	}
}

func TestStandardRate(t *testing.T) {
	now := time.Now()
	tests := map[string]struct {
		header map[string]string
		want   budget.Rate
	}{
		"nothing": {nil, budget.Rate{}},
		"plain names and an epoch": {
			map[string]string{"ratelimit-limit": "5000", "ratelimit-remaining": "4999", "ratelimit-reset": "1444931833"},
			budget.Rate{Limit: 5000, Remaining: 4999, Reset: time.Unix(1444931833, 0)},
		},
		"names with X- and seconds": {
			map[string]string{"X-RateLimit-Limit": "1600", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60", "Retry-After": "7"},
			budget.Rate{Limit: 1600, Remaining: 0, Reset: now.Add(time.Minute), RetryAfter: 7 * time.Second},
		},
		"a limit without the rest says nothing": {map[string]string{"ratelimit-limit": "5000"}, budget.Rate{}},
		"nonsense says nothing": {
			map[string]string{"ratelimit-limit": "many", "ratelimit-remaining": "-3", "ratelimit-reset": "soon", "Retry-After": "later"},
			budget.Rate{},
		},
		"a date to come back": {
			map[string]string{"Retry-After": now.Add(30 * time.Second).UTC().Format(http.TimeFormat)},
			budget.Rate{RetryAfter: 30 * time.Second},
		},
		"a date that has passed":   {map[string]string{"Retry-After": now.Add(-time.Hour).UTC().Format(http.TimeFormat)}, budget.Rate{}},
		"a wait without any sense": {map[string]string{"Retry-After": "9223372036854775807"}, budget.Rate{RetryAfter: time.Hour}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			resp := &http.Response{Header: http.Header{}}
			for k, v := range tc.header {
				resp.Header.Set(k, v)
			}
			got := budget.StandardRate(resp)
			near := func(a, b time.Duration) bool { return (a - b).Abs() < 2*time.Second }
			if got.Limit != tc.want.Limit || got.Remaining != tc.want.Remaining ||
				!near(got.RetryAfter, tc.want.RetryAfter) || !near(got.Reset.Sub(tc.want.Reset), 0) {
				t.Errorf("StandardRate = %+v, want %+v", got, tc.want)
			}
		})
	}
}

// BenchmarkAcquire is a request that need not wait.
func BenchmarkAcquire(b *testing.B) {
	g := budget.New(budget.Config{Windows: []budget.Window{{Calls: 1 << 30, Per: time.Hour}}})
	for b.Loop() {
		if err := g.Acquire(b.Context(), budget.Attach); err != nil {
			b.Fatal(err)
		}
		g.Learn(budget.Rate{})
	}
}
