//go:build vm

package vm

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

const (
	// stallBound is how long a stall may take until the health has it. A kubelet asks each minute, so it is in the pod's status within
	// 2 minutes.
	stallBound = time.Minute
	// slowMinutes is how long a slow disk is watched; the variable CLOUDBLOCK_SLOW_MINUTES has another number.
	slowMinutes = 3

	metricsFlag  = "--http-endpoint=127.0.0.1:9870"
	stalled      = "INACCESSIBLE DeviceStalled"
	stalledCount = `cloudblock_volume_abnormal{reason="DeviceStalled"}`
)

// metrics returns the page of the node program's metrics, without the name of the driver.
func (h *host) metrics() string {
	h.t.Helper()
	return metrics.Unnamed(h.run(`bash -c 'exec 3<>/dev/tcp/127.0.0.1/9870; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3'`))
}

// metric returns one series of the node program; "" if there is none.
func (h *host) metric(name string) string {
	h.t.Helper()
	for line := range strings.Lines(h.metrics()) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// health returns what is wrong with a volume, or that nothing is known. The call must be quick: it touches nothing that is known to hang.
func (v *volume) health() string {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(within(v.t), 20*time.Second)
	defer cancel()
	answer, err := v.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: v.id, StagingTargetPath: v.staging, VolumePublishPath: v.target})
	if status.Code(err) == codes.Unavailable {
		return "unknown"
	}
	must(v.t, err)
	var found []string
	for _, s := range answer.GetVolumeHealth().GetHealthStatuses() {
		found = append(found, s.GetStatus().String()+" "+s.GetReason())
	}
	return strings.Join(found, ", ")
}

// until polls until get returns a value.
func until(t testing.TB, what, want string, bound time.Duration, get func() string) {
	t.Helper()
	start, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	for got := get(); got != want; got = get() {
		if time.Since(start) > bound {
			t.Fatalf("%s is %q after %v, want %q", what, got, bound, want)
		}
		<-tick.C
	}
	t.Logf("%s is %q after %.0f s", what, want, time.Since(start).Seconds())
}

// load is a file of the published volume, or its device.
func (v *volume) load() string {
	if v.fs == "" {
		return v.target
	}
	return v.target + "/load"
}

// prepared makes the file of load.
func (v *volume) prepared() {
	v.t.Helper()
	v.run("dd if=/dev/zero of=%s bs=1M count=8 oflag=direct conv=notrunc,fsync status=none", v.load())
}

// written starts writes past every cache, which go on until they are done.
func (v *volume) written() {
	v.t.Helper()
	v.run("setsid dd if=/dev/zero of=%s bs=64k count=128 oflag=direct conv=notrunc status=none >/dev/null 2>&1 </dev/null & echo $! >/run/load-%s", v.load(), v.disk.Name)
}

// done waits for the end of the writes.
func (v *volume) done() {
	v.t.Helper()
	v.run("while kill -0 $(cat /run/load-%s) 2>/dev/null; do sleep 0.2; done", v.disk.Name)
}

// hangs makes disks hang below volumes that are written to, and wants it in the health and in the metric, and both well afterwards.
func hangs(t *testing.T, disks []*vm.Disk, volumes ...*volume) {
	t.Helper()
	h := volumes[0].host
	for _, v := range volumes {
		v.prepared()
		if got := v.health(); got != "" {
			t.Errorf("health of a sound volume = %q", got)
		}
	}
	for _, d := range disks {
		must(t, h.guest.Throttle(within(t), d, 1, 0))
	}
	for _, v := range volumes {
		v.written()
	}
	for _, v := range volumes {
		until(t, "the health of "+v.id, stalled, stallBound, v.health)
	}
	until(t, "the metric", strconv.Itoa(len(volumes)), stallBound, func() string { return h.metric(stalledCount) })
	for _, d := range disks {
		must(t, h.guest.Throttle(within(t), d, 0, 0))
	}
	for _, v := range volumes {
		v.done()
		until(t, "the health of "+v.id, "", stallBound, v.health)
	}
	until(t, "the metric", "0", stallBound, func() string { return h.metric(stalledCount) })
}

// TestDiskThatHangs: a disk of a cloud keeps its requests, below a filesystem, a raw block volume and an encrypted one. Then it completes
// one request in a second under load, and nothing is reported.
func TestDiskThatHangs(t *testing.T) {
	notShort(t)
	for _, cloud := range []string{vm.Yandex, vm.DigitalOcean} {
		t.Run(cloud, func(t *testing.T) {
			t.Parallel()
			h := ownMachine(t, cloud, metricsFlag)
			plain, raw, encrypted := h.newVolume("ext4", sizeFor("ext4")), h.newVolume("", sizeFor("")), h.newVolume("xfs", sizeFor("xfs"))
			encrypted.context.LUKS, encrypted.secrets = true, map[string]string{driver.SecretLUKS: "correct horse"}
			all := []*volume{plain, raw, encrypted}
			var disks []*vm.Disk
			for _, v := range all {
				v.attach()
				v.ok(v.stage, v.publish)
				disks = append(disks, v.disk)
			}
			for _, v := range all {
				v.wantIO()
			}
			hangs(t, disks, all...)
			slow(t, all)
			for _, v := range all {
				v.down()
			}
			if left := h.metrics(); strings.Contains(left, "csi_volume_handle") {
				t.Errorf("after the unstages there are series of volumes:\n%s", left)
			}
		})
	}
}

// slow makes the disks of volumes complete one request in a second while they are written to.
func slow(t *testing.T, volumes []*volume) {
	t.Helper()
	minutes := slowMinutes
	if text := os.Getenv("CLOUDBLOCK_SLOW_MINUTES"); text != "" {
		var err error
		minutes, err = strconv.Atoi(text)
		must(t, err)
	}
	for _, v := range volumes {
		must(t, v.guest.Throttle(within(t), v.disk, 0, 1))
		v.run(": >/run/slow-%[1]s; setsid sh -c 'while [ -e /run/slow-%[1]s ]; do dd if=/dev/zero of=%[2]s bs=64k count=16 oflag=direct conv=notrunc; done' >/dev/null 2>&1 </dev/null & echo $! >/run/load-%[1]s",
			v.disk.Name, v.load())
	}
	asked, tick := 0, time.NewTicker(5*time.Second)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < time.Duration(minutes)*time.Minute; asked++ {
		<-tick.C
		for _, v := range volumes {
			if got := v.health(); got != "" {
				t.Fatalf("health of a slow volume after %v = %q", time.Since(start), got)
			}
			_, _ = v.NodeGetVolumeStats(within(t), &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target})
		}
		for line := range strings.Lines(volumes[0].metrics()) {
			if strings.HasPrefix(line, "cloudblock_volume_abnormal{") && !strings.HasSuffix(strings.TrimSpace(line), "} 0") {
				t.Fatalf("a slow volume after %v: %s", time.Since(start), line)
			}
		}
	}
	t.Logf("%d times in %d minutes nothing was wrong with slow disks", asked, minutes)
	for _, v := range volumes {
		v.run("rm /run/slow-%s", v.disk.Name)
		must(t, v.guest.Throttle(within(t), v.disk, 0, 0))
		v.done()
	}
}

// TestDiskOfAPoolThatHangs: the disk of a pool of files, and that of a volume group, keeps its requests. The storage has it, too.
func TestDiskOfAPoolThatHangs(t *testing.T) {
	notShort(t)
	t.Parallel()
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		disk, err := vm.NewDisk(t.TempDir(), vm.Yandex, "pool", 2*gib)
		must(t, err)
		h := newPoolHost(t, disk, "mkfs.xfs -q -m reflink=1 $disk")
		h.restartWithMetrics()
		v, err := h.create("pvc-hangs", sizeFor("ext4"), nil)
		must(t, err)
		v.ok(v.stage, v.publish)
		v.wantIO()
		hangsBelow(t, h.host, disk, v)
		v.down()
	})
	t.Run("volume group", func(t *testing.T) {
		t.Parallel()
		h := newGroupHost(t)
		h.restartWithMetrics()
		v, err := h.create("pvc-hangs", "ext4", sizeFor("ext4"))
		must(t, err)
		v.ok(v.stage, v.publish)
		v.wantIO()
		hangsBelow(t, h.host, h.group, v)
		v.down()
	})
}

// hangsBelow is hangs with the health of the storage.
func hangsBelow(t *testing.T, h *host, disk *vm.Disk, v *volume) {
	t.Helper()
	storage := func() string {
		ctx, cancel := context.WithTimeout(within(t), 20*time.Second)
		defer cancel()
		answer, err := h.NodeGetStorageHealth(ctx, &csi.NodeGetStorageHealthRequest{})
		if status.Code(err) == codes.Unavailable {
			return "unknown"
		}
		must(t, err)
		var found []string
		for _, s := range answer.GetBackendHealth() {
			found = append(found, s.GetStatus().String()+" "+s.GetReason())
		}
		return strings.Join(found, ", ")
	}
	if got := storage(); got != "" {
		t.Errorf("health of sound storage = %q", got)
	}
	v.prepared()
	must(t, h.guest.Throttle(within(t), disk, 1, 0))
	v.written()
	until(t, "the health of the volume", stalled, stallBound, v.health)
	until(t, "the health of the storage", "STORAGE_UNREACHABLE DeviceStalled", stallBound, storage)
	must(t, h.guest.Throttle(within(t), disk, 0, 0))
	v.done()
	until(t, "the health of the volume", "", stallBound, v.health)
	until(t, "the health of the storage", "", stallBound, storage)
}

// restartWithMetrics starts the node program again with an address for its metrics.
func (h *host) restartWithMetrics() {
	h.t.Helper()
	must(h.t, h.Stop(within(h.t), "TERM"))
	must(h.t, h.StartWith(within(h.t), metricsFlag))
}

// wantIO compares the series of a volume, after a load, with /proc/diskstats of the device that the pod uses.
func (v *volume) wantIO() {
	v.t.Helper()
	v.prepared()
	v.run("dd if=%s of=/dev/null bs=1M count=8 iflag=direct status=none", v.load())
	device := v.servedBy(v.target)
	counters := func() []string { return strings.Fields(v.run("grep ' %s ' /proc/diskstats", device))[3:] }
	fields := map[string]struct {
		field  int
		factor float64
	}{
		"reads_completed_total": {0, 1}, "read_bytes_total": {2, 512}, "read_time_seconds_total": {3, 1e-3},
		"writes_completed_total": {4, 1}, "written_bytes_total": {6, 512}, "write_time_seconds_total": {7, 1e-3},
		"io_now": {8, 1}, "io_time_seconds_total": {9, 1e-3}, "discards_completed_total": {11, 1}, "flush_requests_total": {15, 1},
	}
	until(v.t, "the I/O of "+device+" in the metrics", "that of the kernel", stallBound, func() string {
		before, page, after := counters(), v.metrics(), counters()
		if strings.Join(before, " ") != strings.Join(after, " ") {
			return "changing"
		}
		for name, f := range fields {
			prefix := fmt.Sprintf("cloudblock_volume_%s{csi_volume_handle=%q} ", name, v.id)
			_, rest, _ := strings.Cut(page, prefix)
			got, err := strconv.ParseFloat(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), 64)
			want, wantErr := strconv.ParseFloat(after[f.field], 64)
			must(v.t, wantErr)
			if difference := got - want*f.factor; err != nil || difference > 1e-6 || difference < -1e-6 {
				v.t.Fatalf("%s of %s is %v, %v; the kernel has %v", name, device, got, err, want*f.factor)
			}
			if strings.HasSuffix(name, "_bytes_total") && got < float64(8*mib) {
				v.t.Errorf("%s of %s is %v, the load had 8 MiB", name, device, got)
			}
		}
		return "that of the kernel"
	})
}
