package ops_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// The oldest change under way counts by its own age, also after its callers have gone.
func TestTheAgeOfTheOldestChangeIsShown(t *testing.T) {
	registry := prometheus.NewRegistry()
	measured, err := ops.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(0)
	s.answer = time.Minute
	simulated(t, ops.Config{Tracker: s, Metrics: measured}, func(t *testing.T, r *ops.Runner) {
		age := func(want float64) {
			t.Helper()
			metrics.Of(t, registry).Want(t, metrics.Samples{"cloudblock_operation_oldest_seconds": want})
		}
		age(0)
		go func() { _, _ = ops.Run(t.Context(), r, s.set(1)) }()
		time.Sleep(40 * time.Second) // of the fake clock
		age(40)
		time.Sleep(30 * time.Second)
		age(0)
	})
}
