package main

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	kernel "github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// stats are counters that differ from each other.
var stats = kernel.BlockStats{
	Reads:    kernel.BlockIO{Completed: 1, Bytes: 512, Time: time.Second},
	Writes:   kernel.BlockIO{Completed: 2, Bytes: 1024, Time: 2 * time.Second},
	Discards: kernel.BlockIO{Completed: 3, Bytes: 1536, Time: 3 * time.Second},
	Flushes:  kernel.BlockIO{Completed: 4, Time: 4 * time.Second},
	Busy:     1500 * time.Millisecond, InFlight: 5,
}

func TestEachStagedVolumeHasTheKernelsCounters(t *testing.T) {
	staged := []node.Staged{
		{Volume: "a", Filesystem: mounter.XFS, Encrypted: true, Stats: stats},
		{Volume: "b"},
	}
	registry := prometheus.NewRegistry()
	must(t, registry.Register(&ioMetrics{func() []node.Staged { return staged }}))
	want := metrics.Samples{
		`cloudblock_volume_info{csi_volume_handle="a",encryption="luks",filesystem="xfs"}`:   1,
		`cloudblock_volume_info{csi_volume_handle="b",encryption="none",filesystem="block"}`: 1,
	}
	for name, value := range map[string]float64{
		"reads_completed_total": 1, "read_bytes_total": 512, "read_time_seconds_total": 1,
		"writes_completed_total": 2, "written_bytes_total": 1024, "write_time_seconds_total": 2,
		"discards_completed_total": 3, "discarded_bytes_total": 1536, "discard_time_seconds_total": 3,
		"flush_requests_total": 4, "flush_requests_time_seconds_total": 4, "io_time_seconds_total": 1.5, "io_now": 5,
	} {
		want["cloudblock_volume_"+name+`{csi_volume_handle="a"}`] = value
		want["cloudblock_volume_"+name+`{csi_volume_handle="b"}`] = 0
	}
	all := metrics.Of(t, registry)
	all.Want(t, want)
	if len(all) != len(want) {
		t.Errorf("there are %d series, want %d: %v", len(all), len(want), all)
	}
	staged = nil
	if left := metrics.Of(t, registry); len(left) > 0 {
		t.Errorf("without a volume there is %v", left)
	}
}
