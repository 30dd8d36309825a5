//go:build e2e

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

const (
	// stallBound is how long a stall may take until the node program shows it: 30 s, and two readings of the counters.
	stallBound = time.Minute
	// callBound is how long a call about a volume that hangs may take. It touches nothing that hangs, so it waits for nothing.
	callBound = 5 * time.Second
)

// frozen freezes the filesystem at a path until the test ends or thaw is called: writes to it wait in the kernel, as on a disk that hangs.
func frozen(t *testing.T, path string) (thaw func()) {
	t.Helper()
	command(t, "fsfreeze", "-f", path)
	done := false
	thaw = func() {
		if !done {
			done = true
			if out, err := exec.Command("fsfreeze", "-u", path).CombinedOutput(); err != nil {
				t.Errorf("fsfreeze -u %s: %v\n%s", path, err, out)
			}
		}
	}
	t.Cleanup(thaw)
	return thaw
}

// writing starts a write to a volume, which is in flight until the disk answers. wait returns its end.
func writing(t *testing.T, file string) (wait func()) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "dd", "if=/dev/zero", "of="+file, "bs=64k", "count=1", "oflag=direct", "conv=notrunc")
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return func() {
		if err := <-ended; err != nil {
			t.Errorf("the write after the stall: %v", err)
		}
	}
}

// untilMetric waits until a metric has a value, and returns how long that took.
func (v *staged) untilMetric(name, want string, bound time.Duration) time.Duration {
	v.t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(v.t.Context(), bound)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for v.metric(name) != want {
		select {
		case <-tick.C:
		case <-ctx.Done():
			v.t.Fatalf("%s is %q after %v, want %s", name, v.metric(name), bound, want)
		}
	}
	return time.Since(start)
}

// health returns the health of a volume as "status reason" and its message.
func (v *staged) health(id string) (string, string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), callBound)
	defer cancel()
	answer, err := v.client.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: id, StagingTargetPath: v.staging})
	must(v.t, err)
	var found, messages []string
	for _, s := range answer.GetVolumeHealth().GetHealthStatuses() {
		found, messages = append(found, s.GetStatus().String()+" "+s.GetReason()), append(messages, s.GetMessage())
	}
	return strings.Join(found, ", "), strings.Join(messages, ", ")
}

func (v *staged) storageHealth() string {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), callBound)
	defer cancel()
	answer, err := v.client.NodeGetStorageHealth(ctx, &csi.NodeGetStorageHealthRequest{})
	must(v.t, err)
	var found []string
	for _, s := range answer.GetBackendHealth() {
		found = append(found, s.GetStatus().String()+" "+s.GetReason())
	}
	return strings.Join(found, ", ")
}

// measured is the error of NodeGetVolumeStats.
func (v *staged) measured() error {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), callBound)
	defer cancel()
	_, err := v.client.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v.store.Handle(v.id).String(), VolumePath: v.staging})
	return err
}

const (
	stalledSeries = `cloudblock_volume_abnormal{reason="DeviceStalled"}`
	stalledHealth = "INACCESSIBLE DeviceStalled"
)

// TestADiskThatHangsIsReported: writes of a volume wait in the kernel. The metric shows it by itself, the health says so within the
// bound, no call waits for the disk, and everything is well when the disk answers again. The log has one line for each change.
func TestADiskThatHangsIsReported(t *testing.T) {
	for _, fs := range []string{"ext4", ""} {
		t.Run("filesystem "+fs, func(t *testing.T) {
			v := stagedVolume(t, fs)
			id, file := v.store.Handle(v.id).String(), filepath.Join(v.staging, "load")
			if fs == "" {
				file = filepath.Join(v.staging, "device")
			} else {
				command(t, "dd", "if=/dev/zero", "of="+file, "bs=64k", "count=1", "conv=fsync")
			}
			if got, _ := v.health(id); got != "" {
				t.Errorf("health of a sound volume = %s", got)
			}
			thaw := frozen(t, diskOf(t, v.dir))
			wait := writing(t, file)
			took := v.untilMetric(stalledSeries, "1", stallBound)
			t.Logf("the metric had the stall after %.0f s", took.Seconds())
			if took < 29*time.Second {
				t.Errorf("the metric had the stall after %v, want 30 s at least", took)
			}
			got, message := v.health(id)
			if got != stalledHealth || !strings.Contains(message, v.kernelName()) || !strings.Contains(message, "completed none for ") {
				t.Errorf("health of a volume that hangs = %s: %s", got, message)
			}
			t.Log(message)
			if err := v.measured(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), v.kernelName()) {
				t.Errorf("NodeGetVolumeStats of a volume that hangs = %v, want Unavailable", err)
			}
			thaw()
			wait()
			if got, _ := v.health(id); got != "" {
				t.Errorf("health after the stall = %s", got)
			}
			v.untilMetric(stalledSeries, "0", stallBound)
			expect.Kind(t, "NodeGetVolumeStats after the stall", v.measured(), fault.None)
			if lines := strings.Count(v.log.String(), "the health of a volume has changed"); lines != 2 {
				t.Errorf("the log has %d lines about the health of the volume, want 2", lines)
			}
			v.gone()
		})
	}
}

// TestADiskOfAPoolThatHangsIsReported: the disk below the pool hangs. The storage's health has it, and so has that of each volume of the
// pool, also of one that nothing uses.
func TestADiskOfAPoolThatHangsIsReported(t *testing.T) {
	dir := tempDir(t)
	// The pool's disk is a file on a filesystem that can be frozen.
	outer, below, mountpoint := filepath.Join(dir, "outer.img"), filepath.Join(dir, "below"), filepath.Join(dir, "pool")
	must(t, errors.Join(os.WriteFile(outer, nil, 0o600), os.Truncate(outer, 2<<30), os.Mkdir(below, 0o700), os.Mkdir(mountpoint, 0o700)))
	command(t, "mkfs.xfs", "-q", outer)
	command(t, "mount", "-o", "loop", outer, below)
	image := filepath.Join(below, "pool.img")
	must(t, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 1<<30)))
	command(t, "mkfs.xfs", "-q", image)
	command(t, "mount", "-o", "loop", image, mountpoint)
	v := stagedVolumeIn(t, dir, "ext4")
	idle, err := v.store.Create(t.Context(), pool.NewVolume{Name: "idle", Size: 32 << 20})
	must(t, err)
	file := filepath.Join(v.staging, "load")
	command(t, "dd", "if=/dev/zero", "of="+file, "bs=64k", "count=1", "conv=fsync")
	if got := v.storageHealth(); got != "" {
		t.Errorf("health of a sound pool = %s", got)
	}
	thaw := frozen(t, below)
	wait := writing(t, file)
	t.Logf("the metric had the stall after %.0f s", v.untilMetric(stalledSeries, "1", stallBound).Seconds())
	if got := v.storageHealth(); got != "STORAGE_UNREACHABLE DeviceStalled" {
		t.Errorf("health of a pool whose disk hangs = %s", got)
	}
	for what, id := range map[string]pool.ID{"a volume that hangs": v.id, "a volume of the pool that nothing uses": idle.ID} {
		if got, message := v.health(v.store.Handle(id).String()); got != stalledHealth {
			t.Errorf("health of %s = %s: %s", what, got, message)
		}
	}
	thaw()
	wait()
	v.untilMetric(stalledSeries, "0", stallBound)
	if got := v.storageHealth(); got != "" {
		t.Errorf("health of the pool after the stall = %s", got)
	}
	v.gone()
}
