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
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// freshFor is how long a good answer is believed, and doubtFor a bad one: probes and scrapes come more
	// often than a cloud's request budget allows to be asked, and there may be several programs.
	freshFor = time.Minute
	doubtFor = 10 * time.Second
	// checkTimeout is less than what the kubelet and Prometheus wait.
	checkTimeout = 4 * time.Second
)

// reachability knows whether the cloud can be reached and takes the credentials.
type reachability struct {
	check func(context.Context) error
	log   *zap.Logger

	mu    sync.Mutex
	asked time.Time
	err   error
}

// ask returns the cached answer while it is fresh, and otherwise asks the cloud. Concurrent callers share one check, which
// does not end with the context of any of them. A check for which the API budget has nothing left is not sent, so the
// answer before it holds: requests with a higher priority use the budget up, and those succeed.
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

// logChange logs a check whose outcome is of another kind than the one before. Before the first check the cloud counts as
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

// register shows the answer as metrics.
func (r *reachability) register(registry *prometheus.Registry) error {
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

// register adds metrics to those that the program shows.
func register(registry *prometheus.Registry, metrics ...prometheus.Collector) error {
	for _, m := range metrics {
		if err := registry.Register(m); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}
