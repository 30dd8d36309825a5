package ops

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/telemetry"
)

// Metrics are the metrics of all Runners.
type Metrics struct {
	reads                  *prometheus.CounterVec
	waiting, queuing, held prometheus.Gauge
	busy                   prometheus.Counter
	temporary              prometheus.Gauge
	running                telemetry.Running
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudblock_poll_looks_total",
			Help: "Reads of how operations stand, by how many were asked for (one, many) and by result (ok, failed).",
		}, []string{"asked", "result"}),
		waiting: gauge("cloudblock_poll_waiting", "Calls that wait for an operation of the cloud to end."),
		queuing: gauge("cloudblock_queue_waiting", "Changes that wait in the queue of their object or machine."),
		held:    gauge("cloudblock_queue_held", "Changes that hold their object and machine until they have ended in the cloud."),
		busy: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cloudblock_queue_busy_total",
			Help: "Changes that the cloud refused for a passing reason, and that were sent again later.",
		}),
		temporary: gauge("cloudblock_temporary_copies", "Temporary snapshots and copies of clones that were there after the last sweep."),
	}
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cloudblock_operation_oldest_seconds",
		Help: "How long the oldest change under way has run; 0 when there is none.",
	}, func() float64 { return m.running.Oldest().Seconds() })
	for _, c := range []prometheus.Collector{m.reads, m.waiting, m.queuing, m.held, m.busy, m.temporary, oldest} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of changes: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) read(asked int, err error) {
	if m == nil {
		return
	}
	many, result := "one", "ok"
	if asked > 1 {
		many = "many"
	}
	if err != nil {
		result = "failed"
	}
	m.reads.WithLabelValues(many, result).Inc()
}

func (m *Metrics) waits(change float64) {
	if m != nil {
		m.waiting.Add(change)
	}
}

func (m *Metrics) queued(waiting, held float64) {
	if m != nil {
		m.queuing.Add(waiting)
		m.held.Add(held)
	}
}

func (m *Metrics) refused() {
	if m != nil {
		m.busy.Inc()
	}
}

func (m *Metrics) begins() (end func()) {
	if m == nil {
		return func() {}
	}
	return m.running.Begin()
}
