package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// freshFor is how long a success is cached, and doubtFor a failure: probes and scrapes are more frequent than a cloud's request
	// budget allows, and there may be several programs.
	freshFor = time.Minute
	doubtFor = 10 * time.Second
	// checkTimeout is shorter than the timeouts of the kubelet and Prometheus.
	checkTimeout = 4 * time.Second
)

// reachability is whether the cloud can be reached and accepts the credentials.
type reachability struct {
	check func(context.Context) error
	log   *zap.Logger

	mu    sync.Mutex
	asked time.Time
	err   error
}

// ask returns the cached result while it is fresh, and otherwise checks the cloud. Concurrent callers share one check, which does
// not end with the context of any of them. A check that the API budget does not allow is not sent, and the previous result stays:
// the budget is used up by requests with a higher priority, which succeed.
func (r *reachability) ask(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	believed := freshFor
	if r.err != nil {
		believed = doubtFor
	}
	if !r.asked.IsZero() && time.Since(r.asked) < believed {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	before := r.err
	err := r.check(ctx)
	r.asked = time.Now()
	if errors.Is(err, budget.ErrNotSent) {
		return before
	}
	r.err = err
	r.logChange(before)
	return r.err
}

// logChange logs a check whose result is of another kind than the previous one. Before the first check the cloud counts as
// reachable.
func (r *reachability) logChange(before error) {
	switch {
	case r.err == nil && before != nil:
		r.log.Info("the cloud can be reached again, and takes the credentials")
	case r.err == nil || before != nil && refusesCredentials(before) == refusesCredentials(r.err):
	case refusesCredentials(r.err):
		r.log.Warn("the cloud refuses the credentials; serving all the same", zap.Error(r.err))
	default:
		r.log.Warn("the cloud does not answer as it should; serving all the same", zap.Error(r.err))
	}
}

func refusesCredentials(err error) bool { return fault.Of(err) == fault.Denied }

// register registers the result as metrics.
func (r *reachability) register(registry prometheus.Registerer) error {
	gauge := func(name, help string, is func(error) bool) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if is(r.ask(context.Background())) {
				return 1
			}
			return 0
		})
	}
	return register(registry,
		gauge("cloudblock_cloud_reachable", "1 if the cloud can be reached and takes the credentials, else 0.", func(err error) bool { return err == nil }),
		gauge("cloudblock_cloud_credentials_refused", "1 if the cloud refuses the credentials, else 0.", refusesCredentials))
}

// register adds metrics to the registry.
func register(registry prometheus.Registerer, metrics ...prometheus.Collector) error {
	for _, m := range metrics {
		if err := registry.Register(m); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// poolMetrics reads the pools at each scrape. A pool that cannot be read has no samples; /readyz has the reason.
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
