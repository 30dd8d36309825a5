package main

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
)

// ioMetrics shows the kernel's counters of the staged volumes' devices, which are read at each scrape.
type ioMetrics struct {
	staged func() []node.Staged
}

// handleLabel is the label that kube_persistentvolume_info of kube-state-metrics has for the same.
const handleLabel = "csi_volume_handle"

var volumeInfoDesc = prometheus.NewDesc("cloudblock_volume_info", "Always 1, for each volume staged on this node.", []string{handleLabel, "filesystem", "encryption"}, nil)

// ioSeries is one of the series of each volume.
type ioSeries struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func newIO(kind prometheus.ValueType, name, help string) ioSeries {
	return ioSeries{prometheus.NewDesc(name, help, []string{handleLabel}, nil), kind}
}

// ioNames are the series in the order of ioValues. The names are the node exporter's, node_disk_*.
var ioNames = []ioSeries{
	newIO(prometheus.CounterValue, "cloudblock_volume_reads_completed_total", "Reads of a volume that were completed."),
	newIO(prometheus.CounterValue, "cloudblock_volume_read_bytes_total", "Bytes read from a volume."),
	newIO(prometheus.CounterValue, "cloudblock_volume_read_time_seconds_total", "How long the reads of a volume took, in sum."),
	newIO(prometheus.CounterValue, "cloudblock_volume_writes_completed_total", "Writes to a volume that were completed."),
	newIO(prometheus.CounterValue, "cloudblock_volume_written_bytes_total", "Bytes written to a volume."),
	newIO(prometheus.CounterValue, "cloudblock_volume_write_time_seconds_total", "How long the writes to a volume took, in sum."),
	newIO(prometheus.CounterValue, "cloudblock_volume_discards_completed_total", "Discards of a volume that were completed."),
	newIO(prometheus.CounterValue, "cloudblock_volume_discarded_bytes_total", "Bytes of a volume that were discarded."),
	newIO(prometheus.CounterValue, "cloudblock_volume_discard_time_seconds_total", "How long the discards of a volume took, in sum."),
	newIO(prometheus.CounterValue, "cloudblock_volume_flush_requests_total", "Flushes of a volume's cache that were completed."),
	newIO(prometheus.CounterValue, "cloudblock_volume_flush_requests_time_seconds_total", "How long the flushes of a volume's cache took, in sum."),
	newIO(prometheus.CounterValue, "cloudblock_volume_io_time_seconds_total", "How long a volume had requests in flight."),
	newIO(prometheus.GaugeValue, "cloudblock_volume_io_now", "Requests of a volume in flight."),
}

// ioValues are the values of a volume.
func ioValues(v node.Staged) []float64 {
	s := v.Stats
	return []float64{
		float64(s.Reads.Completed), float64(s.Reads.Bytes), s.Reads.Time.Seconds(),
		float64(s.Writes.Completed), float64(s.Writes.Bytes), s.Writes.Time.Seconds(),
		float64(s.Discards.Completed), float64(s.Discards.Bytes), s.Discards.Time.Seconds(),
		float64(s.Flushes.Completed), s.Flushes.Time.Seconds(),
		s.Busy.Seconds(), float64(s.InFlight),
	}
}

// Describe implements prometheus.Collector.
func (m *ioMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- volumeInfoDesc
	for _, series := range ioNames {
		to <- series.desc
	}
}

// Collect implements prometheus.Collector.
func (m *ioMetrics) Collect(to chan<- prometheus.Metric) {
	for _, v := range m.staged() {
		encryption := "none"
		if v.Encrypted {
			encryption = "luks"
		}
		to <- prometheus.MustNewConstMetric(volumeInfoDesc, prometheus.GaugeValue, 1, v.Volume, cmp.Or(string(v.Filesystem), "block"), encryption)
		for i, value := range ioValues(v) {
			to <- prometheus.MustNewConstMetric(ioNames[i].desc, ioNames[i].kind, value, v.Volume)
		}
	}
}
