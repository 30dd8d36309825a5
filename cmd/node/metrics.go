package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	"github.com/cloudblock-csi/cloudblock-csi/internal/telemetry"
)

// nodeMetrics are the metrics of the node program. docs/monitoring.md explains them.
type nodeMetrics struct {
	telemetry.Running

	dead   prometheus.Counter
	health healthMetrics
	log    *zap.Logger
}

func newMetrics(registry prometheus.Registerer, log *zap.Logger) (*nodeMetrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &nodeMetrics{
		log:  log,
		dead: counter("cloudblock_dead_mounts_found_total", "How often a mount was found whose disk had been taken away."),
	}
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cloudblock_operation_oldest_seconds",
		Help: "How long the oldest change under way has run; 0 when there is none.",
	}, func() float64 { return m.Oldest().Seconds() })
	for _, c := range []prometheus.Collector{m.dead, oldest, &m.health} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// Health implements node.Metrics.
func (m *nodeMetrics) Health(volume string, reasons []string) {
	if m.health.set(volume, reasons) {
		m.log.Warn("the health of a volume has changed", zap.String("volume_id", volume), zap.Strings("reasons", reasons))
	}
}

// deadMount counts and logs a mount whose disk is gone.
func (m *nodeMetrics) deadMount(path string) {
	m.dead.Inc()
	m.log.Warn("a mount was found whose disk is gone; stop the pods that use it", zap.String("path", path))
}

// healthMetrics has the reasons of the unhealthy volumes at their last measurement.
type healthMetrics struct {
	mu      sync.Mutex
	volumes map[string][]string
}

var abnormalDesc = prometheus.NewDesc("cloudblock_volume_abnormal", "Volumes with which something is wrong, by reason.", []string{"reason"}, nil)

// set stores the reasons of a volume and reports whether they have changed.
func (c *healthMetrics) set(volume string, reasons []string) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed = !slices.Equal(c.volumes[volume], reasons)
	if len(reasons) == 0 {
		delete(c.volumes, volume)
		return changed
	}
	if c.volumes == nil {
		c.volumes = map[string][]string{}
	}
	c.volumes[volume] = reasons
	return changed
}

// Describe implements prometheus.Collector.
func (c *healthMetrics) Describe(to chan<- *prometheus.Desc) { to <- abnormalDesc }

// Collect implements prometheus.Collector.
func (c *healthMetrics) Collect(to chan<- prometheus.Metric) {
	count := map[string]int{}
	for _, reason := range node.HealthReasons() {
		count[reason] = 0
	}
	c.mu.Lock()
	for reasons := range maps.Values(c.volumes) {
		for _, reason := range slices.Compact(slices.Sorted(slices.Values(reasons))) {
			count[reason]++
		}
	}
	c.mu.Unlock()
	for reason, n := range count {
		to <- prometheus.MustNewConstMetric(abnormalDesc, prometheus.GaugeValue, float64(n), reason)
	}
}

// slotMetrics reads the slots of the machine at each scrape. It has no samples while they cannot be read.
type slotMetrics struct {
	slots func() (all, used int64, err error)
	log   *zap.Logger
}

var (
	slotsDesc     = prometheus.NewDesc("cloudblock_attach_slots", "How many volumes this machine takes.", nil, nil)
	slotsUsedDesc = prometheus.NewDesc("cloudblock_attach_slots_used", "How many volumes are attached to this machine.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *slotMetrics) Describe(to chan<- *prometheus.Desc) { to <- slotsDesc; to <- slotsUsedDesc }

// Collect implements prometheus.Collector.
func (m *slotMetrics) Collect(to chan<- prometheus.Metric) {
	all, used, err := m.slots()
	if err != nil {
		m.log.Debug("the slots of the machine cannot be read", zap.Error(err))
		return
	}
	to <- prometheus.MustNewConstMetric(slotsDesc, prometheus.GaugeValue, float64(all))
	to <- prometheus.MustNewConstMetric(slotsUsedDesc, prometheus.GaugeValue, float64(used))
}
