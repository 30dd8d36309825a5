package budget

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what Governors and Transports tell about themselves.
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
