package queue

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what a Queue tells about itself.
type Metrics struct {
	waiting, held prometheus.Gauge
	busy          prometheus.Counter
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cloudblock_queue_waiting",
			Help: "Changes that wait for their turn on a machine.",
		}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cloudblock_queue_held",
			Help: "Changes that have their turn and are not yet ended in the cloud.",
		}),
		busy: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cloudblock_queue_busy_total",
			Help: "Changes that the cloud refused because of somebody else's change, and that were sent again later.",
		}),
	}
	for _, c := range []prometheus.Collector{m.waiting, m.held, m.busy} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the queue: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) moved(waiting, held float64) {
	if m != nil {
		m.waiting.Add(waiting)
		m.held.Add(held)
	}
}

func (m *Metrics) refused() {
	if m != nil {
		m.busy.Inc()
	}
}
