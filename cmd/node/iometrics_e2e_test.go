//go:build e2e

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fieldOf has the field of /proc/diskstats, counted from the device's name, and the factor of each series of a volume.
var fieldOf = map[string]struct {
	field  int
	factor float64
}{
	"reads_completed_total": {1, 1}, "read_bytes_total": {3, 512}, "read_time_seconds_total": {4, 1e-3},
	"writes_completed_total": {5, 1}, "written_bytes_total": {7, 512}, "write_time_seconds_total": {8, 1e-3},
	"io_now": {9, 1}, "io_time_seconds_total": {10, 1e-3},
	"discards_completed_total": {12, 1}, "discarded_bytes_total": {14, 512}, "discard_time_seconds_total": {15, 1e-3},
	"flush_requests_total": {16, 1}, "flush_requests_time_seconds_total": {17, 1e-3},
}

// io returns the series of the volume by the last part of their names.
func (v *staged) io() map[string]float64 {
	v.t.Helper()
	found := map[string]float64{}
	for name := range fieldOf {
		text := v.metric(fmt.Sprintf("cloudblock_volume_%s{csi_volume_handle=%q}", name, v.store.Handle(v.id)))
		if text == "" {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		must(v.t, err)
		found[name] = value
	}
	return found
}

// diskstats returns what the kernel has of a device in the same form.
func diskstats(t *testing.T, kernel string) map[string]float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/diskstats")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if fields[2] != kernel {
			continue
		}
		found := map[string]float64{}
		for name, f := range fieldOf {
			value, err := strconv.ParseFloat(fields[2+f.field], 64)
			must(t, err)
			found[name] = value * f.factor
		}
		return found
	}
	t.Fatalf("/proc/diskstats has no %s", kernel)
	return nil
}

// TestIOOfAVolumeIsWhatTheKernelCounts: after a known load the series of a volume are the kernel's counters, in bytes and seconds. They
// are there after a restart of the program too, before any call, and go with the unstage.
func TestIOOfAVolumeIsWhatTheKernelCounts(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs", ""} {
		t.Run("filesystem "+fs, func(t *testing.T) {
			v := stagedVolume(t, fs)
			device, file := v.kernelName(), filepath.Join(v.staging, "load")
			if fs == "" {
				file = filepath.Join(v.staging, "device")
			}
			before := v.io()
			if len(before) != len(fieldOf) {
				t.Fatalf("the volume has the series %v, want %d", before, len(fieldOf))
			}
			const load = 32 << 20
			command(t, "dd", "if=/dev/urandom", "of="+file, "bs=1M", "count=32", "oflag=direct", "conv=notrunc,fsync")
			command(t, "dd", "if="+file, "of=/dev/null", "bs=1M", "count=32", "iflag=direct")
			v.want("after the load", device)
			after := v.io()
			for _, name := range []string{"read_bytes_total", "written_bytes_total"} {
				if moved := after[name] - before[name]; moved < load || moved > load+8<<20 {
					t.Errorf("%s has grown by %.0f, the load had %d", name, moved, load)
				}
			}
			kind := map[string]string{"": "block"}[fs] + fs
			if got := v.metric(fmt.Sprintf("cloudblock_volume_info{csi_volume_handle=%q,encryption=\"none\",filesystem=%q}", v.store.Handle(v.id), kind)); got != "1" {
				t.Errorf("cloudblock_volume_info of a volume with %s is %q, want 1", kind, got)
			}
			v.kill()
			v.client, v.kill = v.start()
			v.want("after a restart", device)
			v.gone()
			if left := v.io(); len(left) > 0 {
				t.Errorf("after the unstage there is %v", left)
			}
			v.kill()
			v.client, v.kill = v.start()
			if left := v.io(); len(left) > 0 {
				t.Errorf("after the unstage and a restart there is %v", left)
			}
		})
	}
}

// want compares the series of the volume with the kernel's, which may change between two readings.
func (v *staged) want(when, device string) {
	v.t.Helper()
	var got, want map[string]float64
	v.until("the series are the kernel's, "+when, func() bool {
		before := diskstats(v.t, device)
		got, want = v.io(), diskstats(v.t, device)
		if fmt.Sprint(before) != fmt.Sprint(want) {
			return false
		}
		for name := range fieldOf {
			if difference := got[name] - want[name]; len(got) == 0 || difference > 1e-6 || difference < -1e-6 {
				v.t.Fatalf("%s: %s is %v, the kernel has %v", when, name, got[name], want[name])
			}
		}
		return true
	})
}
