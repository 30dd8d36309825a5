package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
)

// poolMetrics reads the pools at each scrape. A pool that cannot be read has no samples, and the readiness says why.
type poolMetrics struct {
	usage                                    func(ctx context.Context) ([]local.Usage, error)
	log                                      *zap.Logger
	size, free, reserved, volumes, snapshots *prometheus.Desc
	abnormal                                 *prometheus.Desc
}

func newPoolMetrics(usage func(ctx context.Context) ([]local.Usage, error), log *zap.Logger) *poolMetrics {
	desc := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{label}, nil)
	}
	return &poolMetrics{
		usage: usage, log: log,
		size:      desc("cloudblock_pool_size_bytes", "Size of the filesystem that the pool is on, or of the volume group.", "pool"),
		free:      desc("cloudblock_pool_free_bytes", "Bytes of new volumes that fit.", "pool"),
		reserved:  desc("cloudblock_pool_reserved_bytes", "Bytes that existing volumes and snapshots may still allocate.", "pool"),
		volumes:   desc("cloudblock_pool_volumes", "Volumes in the pool.", "pool"),
		snapshots: desc("cloudblock_pool_snapshots", "Snapshots in the pool.", "pool"),
		abnormal:  desc("cloudblock_volume_abnormal", "Volumes with which something is wrong, by reason.", "reason"),
	}
}

// Describe implements prometheus.Collector.
func (m *poolMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{m.size, m.free, m.reserved, m.volumes, m.snapshots, m.abnormal} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *poolMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	pools, err := m.usage(ctx)
	if err != nil {
		m.log.Debug("the metrics lack a pool", zap.Error(err))
	}
	gauge := func(desc *prometheus.Desc, value int64, label string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), label)
	}
	abnormal := map[string]int64{}
	for _, reason := range local.HealthReasons() {
		abnormal[reason] = 0
	}
	for _, p := range pools {
		gauge(m.size, p.Size, p.Pool)
		gauge(m.free, p.Free, p.Pool)
		gauge(m.reserved, p.Reserved, p.Pool)
		gauge(m.volumes, p.Volumes, p.Pool)
		gauge(m.snapshots, p.Snapshots, p.Pool)
		for reason, n := range p.Abnormal {
			abnormal[reason] += n
		}
	}
	for reason, n := range abnormal {
		gauge(m.abnormal, n, reason)
	}
}
