package main

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// A volume counts once for each of its reasons, until it is healthy or unstaged; every reason has a series from the start, so that
// its first increase is visible.
func TestHealthIsCountedByReason(t *testing.T) {
	registry := prometheus.NewRegistry()
	observed, lines := observer.New(zap.WarnLevel)
	m, err := newMetrics(registry, zap.New(observed))
	must(t, err)
	const dead, gone = `cloudblock_volume_abnormal{reason="FilesystemDead"}`, `cloudblock_volume_abnormal{reason="DeviceGone"}`
	first := metrics.Of(t, registry)
	first.Want(t, metrics.Samples{dead: 0, gone: 0, "cloudblock_operation_oldest_seconds": 0})
	m.Health("a", []string{"FilesystemDead", "FilesystemDead", "FilesystemErrors"})
	m.Health("b", []string{"FilesystemDead"})
	m.Health("c", nil)
	if n := lines.Len(); n != 2 {
		t.Errorf("%d lines are logged, want one for each change: %v", n, lines.All())
	}
	m.Health("b", []string{"FilesystemDead"})
	all := metrics.Of(t, registry)
	all.Want(t, metrics.Samples{
		dead: 2, gone: 0, `cloudblock_volume_abnormal{reason="FilesystemErrors"}`: 1,
	})
	if len(all) != len(first) {
		t.Errorf("there are %d series, at the start %d", len(all), len(first))
	}
	m.Health("a", []string{"DeviceGone"})
	m.Health("b", nil)
	metrics.Of(t, registry).Want(t, metrics.Samples{dead: 0, gone: 1})
	if n := lines.Len(); n != 4 {
		t.Errorf("%d lines are logged, want one for each change: %v", n, lines.All())
	}
}

func TestSlotsAreShownWhileTheyCanBeRead(t *testing.T) {
	registry := prometheus.NewRegistry()
	var failed error
	must(t, registry.Register(&slotMetrics{log: zap.NewNop(), slots: func() (int64, int64, error) { return 15, 4, failed }}))
	metrics.Of(t, registry).Want(t, metrics.Samples{"cloudblock_attach_slots": 15, "cloudblock_attach_slots_used": 4})
	failed = errors.New("no /sys")
	if got := metrics.Of(t, registry); len(got) > 0 {
		t.Errorf("slots that cannot be read are %v", got)
	}
}
