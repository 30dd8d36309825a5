package driver

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// metrics are those of the RPCs. docs/operations.md explains them.
type metrics struct {
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	refused  *prometheus.CounterVec
}

func newMetrics(cfg Config) (*metrics, error) {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "cloudblock_rpc_duration_seconds",
			Help:    "How long CSI calls took, by method and gRPC code.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300},
		}, []string{"method", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cloudblock_rpc_in_flight",
			Help: "CSI calls being served now, by method.",
		}, []string{"method"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudblock_refusals_total",
			Help: "CSI calls refused for a reason that a person has to act on, by its code.",
		}, []string{"reason"}),
	}
	for _, reason := range fault.Reasons() {
		m.refused.WithLabelValues(string(reason))
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "cloudblock_build_info",
		Help:        "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "commit": cfg.Commit},
	})
	build.Set(1)
	for _, c := range []prometheus.Collector{m.duration, m.inFlight, m.refused, build} {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}
