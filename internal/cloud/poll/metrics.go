package poll

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what Pollers and Shareds tell about themselves.
type Metrics struct {
	looks   *prometheus.CounterVec
	waiting prometheus.Gauge
	usual   *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudblock_poll_looks_total",
			Help: "Requests made to see how operations stand, by how many were asked for (one, many) and by result (ok, failed).",
		}, []string{"asked", "result"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cloudblock_poll_waiting",
			Help: "Calls that wait for an operation of the cloud to end.",
		}),
		usual: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cloudblock_poll_usual_seconds",
			Help: "How long operations of a kind usually take, as far as it is learnt.",
		}, []string{"kind"}),
	}
	for _, c := range []prometheus.Collector{m.looks, m.waiting, m.usual} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of waiting: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) looked(asked string, err error) {
	if m == nil {
		return
	}
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.looks.WithLabelValues(asked, result).Inc()
}

func (m *Metrics) waits(change float64) {
	if m != nil {
		m.waiting.Add(change)
	}
}

func (m *Metrics) learnt(kind Kind, seconds float64) {
	if m != nil {
		m.usual.WithLabelValues(string(kind)).Set(seconds)
	}
}
