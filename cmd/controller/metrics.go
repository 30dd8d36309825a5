package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
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

// listedFor is how long the volumes of a list are served as metrics: two of the lists that account reads each hour.
const listedFor = 2*listEvery + 10*time.Minute

// census is a backend that counts the volumes of the lists that others ask it for, as metrics. It sends no request of its own. Before the
// first list and after listedFor without one it has no samples.
type census struct {
	cloud.Cloud

	cluster      string
	count, bytes *prometheus.Desc

	mu     sync.Mutex
	read   time.Time
	groups map[group]total
}

// group is a group of volumes: whose they are ("this" cluster's, "another" one's, "unknown") and whether they are attached.
type group struct{ owner, attached string }

type total struct{ volumes, bytes int64 }

func newCensus(c cloud.Cloud, cluster string) *census {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"owner", "attached"}, nil)
	}
	return &census{
		Cloud: c, cluster: cluster,
		count: desc("cloudblock_cloud_volumes", "Volumes in the account, as of the last list of them."),
		bytes: desc("cloudblock_cloud_volumes_bytes", "Bytes of the volumes in the account, as of the last list of them."),
	}
}

// ListVolumes counts the volumes of a list that is one page, as the sidecars ask for it.
func (c *census) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	list, err := c.Cloud.ListVolumes(ctx, page)
	if err != nil || page.Token != "" || list.Next != "" {
		return list, err
	}
	groups := map[group]total{}
	for _, whose := range []string{"this", "another", unknown} {
		groups[group{whose, "true"}], groups[group{whose, "false"}] = total{}, total{} // zero is a sample, too
	}
	for i := range list.Volumes {
		v := &list.Volumes[i]
		of := group{unknown, strconv.FormatBool(len(v.AttachedTo) > 0)}
		switch {
		case v.Mark.Driver && v.Mark.Cluster == c.cluster:
			of.owner = "this"
		case v.Mark.Driver:
			of.owner = "another"
		}
		sum := groups[of]
		groups[of] = total{sum.volumes + 1, sum.bytes + int64(v.Size)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read, c.groups = time.Now(), groups
	return list, nil
}

// Describe implements prometheus.Collector.
func (c *census) Describe(to chan<- *prometheus.Desc) {
	to <- c.count
	to <- c.bytes
}

// Collect implements prometheus.Collector.
func (c *census) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) > listedFor {
		return
	}
	for of, sum := range c.groups {
		to <- prometheus.MustNewConstMetric(c.count, prometheus.GaugeValue, float64(sum.volumes), of.owner, of.attached)
		to <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(sum.bytes), of.owner, of.attached)
	}
}
