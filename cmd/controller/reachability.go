package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

	mu    sync.Mutex
	asked time.Time
	err   error
}

// ask returns the last answer if it is fresh and a new one else. One caller asks for all: the
// question does not end with the caller's context.
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
	r.err = r.check(ctx)
	r.asked = time.Now()
	return r.err
}

// register shows the answer as a metric.
func (r *reachability) register(registry *prometheus.Registry) error {
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cloudblock_cloud_reachable",
		Help: "1 if the cloud can be reached and takes the credentials, else 0.",
	}, func() float64 {
		if r.ask(context.Background()) != nil {
			return 0
		}
		return 1
	})
	if err := registry.Register(gauge); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
