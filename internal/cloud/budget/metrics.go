package budget

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of all Governors.
type Metrics struct {
	requests *prometheus.CounterVec
	waited   *prometheus.HistogramVec
	left     *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudblock_api_requests_total",
			Help: "Requests to the cloud's API by route, method and status code (error: no answer).",
		}, []string{"route", "method", "code"}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "cloudblock_api_budget_wait_seconds",
			Help:    "How long requests waited for the API budget, by priority.",
			Buckets: []float64{.001, .1, .3, 1, 3, 10, 30, 100},
		}, []string{"priority"}),
		left: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cloudblock_api_budget_left",
			Help: "Requests that may still be sent within each window of the API budget.",
		}, []string{"budget", "window"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.waited, m.left} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the API budget: %w", err)
		}
	}
	return m, nil
}

// Requested counts a request. Route, method and code must have few different values.
func (m *Metrics) Requested(route, method, code string) {
	if m != nil {
		m.requests.WithLabelValues(route, method, code).Inc()
	}
}

func (m *Metrics) waits(p Priority, waited time.Duration) {
	if m != nil {
		m.waited.WithLabelValues(p.String()).Observe(waited.Seconds())
	}
}

func (m *Metrics) leaves(budget string, w *window, now time.Time) {
	if m != nil {
		m.left.WithLabelValues(budget, w.Per.String()).Set(w.left(now))
	}
}
