// Package middleware adds to a cloud.Cloud what every backend needs and none should contain: logs and
// metrics, idempotency and retry. Each decorator embeds the Cloud it wraps and
// overrides only what it changes; Stack puts them in their order.
package middleware

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Options are what the decorators need from outside. The zero value works.
type Options struct {
	// Log gets one debug line per call. Nil: no log.
	Log *zap.Logger
	// Calls gets the duration of each call; NewCalls makes it. Nil: no metric.
	Calls *prometheus.HistogramVec
	// Backoff says how retry waits. Without Tries it means DefaultBackoff.
	Backoff wait.Backoff
}

// Stack wraps a backend into all decorators, outermost first: Observe, Idempotent, Retry.
//
// Observe stands outside so that it sees what the caller gets and how long the caller waited.
// Retry stands inside so that a repeated read is not taken for a second call.
func Stack(c cloud.Cloud, opts Options) cloud.Cloud {
	c = NewRetry(c, opts.Backoff)
	c = NewIdempotent(c)
	return NewObserve(c, opts.Log, opts.Calls)
}
