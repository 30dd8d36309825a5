//go:build e2e

package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

const (
	mib = int64(1) << 20
	// ordinary is a size that every filesystem can be made in: xfs wants 300 MiB.
	ordinary = 320 * mib
)

// sizeFor is a small size that the filesystem can be made in.
func sizeFor(fs string) int64 {
	switch fs {
	case "xfs":
		return ordinary
	default:
		return 64 * mib
	}
}

// machine is this computer as a node: a pool, and the Node service on a socket.
type machine struct {
	csi.NodeClient
	t   *testing.T
	dir string
	// kubelet is the kubelet's folder.
	kubelet string
	pool    *files.Pool

	registry *prometheus.Registry
	dead     atomic.Int64 // dead mounts found
}

type machineConfig struct {
	dir    string // empty: a new one
	linked bool   // the kubelet's folder is named by a symbolic link
	runner host.Runner
	log    *zap.Logger

	sysDir  string // empty: /sys
	cgroups string // empty: no limits of I/O
	records *device.Records
}

func newMachine(t *testing.T, cfg machineConfig) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes loop devices and mounts; run it as root")
	}
	if cfg.dir == "" {
		cfg.dir = newDir(t)
	}
	m := &machine{t: t, dir: cfg.dir, kubelet: filepath.Join(cfg.dir, "kubelet"), registry: prometheus.NewRegistry()}
	must(t, os.MkdirAll(m.kubelet, 0o700))
	if cfg.linked {
		link := filepath.Join(m.dir, "link")
		must(t, os.Symlink(m.kubelet, link))
		m.kubelet = link
	}
	poolDir := filepath.Join(m.dir, "pool")
	must(t, os.MkdirAll(poolDir, 0o700))
	set, err := pools.Open(t.Context(), pool.Config{Dir: poolDir, Node: "node-a", MountTable: mounts.Table(t, poolDir)})
	must(t, err)
	m.pool = set.Opened()[0].(*files.Pool)
	disks := device.NewPools(set, "node-a", device.LoopConfig{})
	m.NodeClient = serveWith(t, node.Config{
		Devices: disks, Mounter: mount.New(mount.Config{Dir: m.kubelet, Sysfs: host.Sysfs(cfg.sysDir), Programs: cfg.runner}),
		Records: cfg.records, Formats: device.NewFormats(filepath.Join(m.dir, "formats")), SizeStep: pool.SizeStep, NeverWritten: disks.NeverWritten,
		CgroupDir: cfg.cgroups, DeadMount: func(string) { m.dead.Add(1) }, Backend: m,
	}, driver.Config{Log: cfg.log, Registry: m.registry})
	return m
}

// Volume and Storage make the machine a node.Backend that knows which volumes exist.
func (m *machine) Volume(ctx context.Context, id string) ([]mount.Health, error) {
	handle, err := pool.ParseHandle(id)
	if err == nil {
		_, err = m.pool.Get(ctx, handle.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w: %w", id, fault.NotFound, err)
	}
	return nil, nil
}

func (m *machine) Storage(context.Context) ([]mount.Health, error) { return nil, nil }

func (m *machine) Disks(*mount.Table, string) []uint64 { return nil }

// newDir returns a folder whose mounts and loop devices are taken down after the test.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "node-e2e-")
	must(t, err)
	dir, err = filepath.EvalSymlinks(dir)
	must(t, err)
	t.Cleanup(func() { cleanUp(t, dir) })
	return dir
}

func cleanUp(t *testing.T, dir string) {
	for _, m := range slices.Backward(mountsBelow(t, dir)) {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", m, err)
		}
	}
	for _, loop := range loopsBelow(dir) {
		f, err := os.OpenFile(loop, os.O_RDONLY, 0)
		if err == nil && strings.HasPrefix(backingFile(loop), dir+"/") { // still ours, now that it is open
			err = errors.Join(unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0), f.Close())
		}
		if err != nil && !errors.Is(err, unix.ENXIO) {
			t.Errorf("detach %s: %v", loop, err)
		}
	}
	if left := mountsBelow(t, dir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
		return
	}
	os.RemoveAll(dir)
}

// mountsBelow returns the mount points at and below a folder, oldest first.
func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	var found []string
	for line := range strings.Lines(string(table)) {
		if path := strings.Fields(line)[4]; path == dir || strings.HasPrefix(path, dir+"/") {
			found = append(found, path)
		}
	}
	return found
}

// mountTable is the mount table below a folder, for comparing before and after.
func mountTable(t *testing.T, dir string) string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	var b strings.Builder
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, " "+dir) {
			b.WriteString(line)
		}
	}
	return b.String()
}

var loopsBelow = loops.Below

// backingFile is the file that a loop device stands on.
func backingFile(loop string) string {
	data, _ := os.ReadFile("/sys/block/" + filepath.Base(loop) + "/loop/backing_file")
	return strings.TrimSpace(string(data))
}

// volume is a volume of the machine's pool and the paths that a kubelet would use for it.
type volume struct {
	*machine
	id, staging, target string
	image               string
	capability          *csi.VolumeCapability
	context             map[string]string
}

// newVolume makes a volume; fs empty means a raw block volume.
func (m *machine) newVolume(fs string, size int64) *volume {
	m.t.Helper()
	n := len(must1(m.pool.List(m.t.Context()))(m.t))
	r, err := m.pool.Create(m.t.Context(), pool.NewVolume{Name: fmt.Sprintf("pvc-%d", n), Size: size})
	must(m.t, err)
	base := filepath.Join(m.kubelet, fmt.Sprint("volume-", n))
	v := &volume{
		machine: m, id: m.pool.Handle(r.ID).String(), image: m.pool.ImagePath(r.ID),
		staging: filepath.Join(base, "staging"), target: filepath.Join(base, "pod", "target"),
		capability: programs.Claim{Filesystem: fs}.Capability(),
		context: names.EncodeVolumeContext(driver.VolumeContext{
			DeviceName: r.ID.ImageName(), Size: r.Size, Content: driver.ContentBlank,
		}),
	}
	must(m.t, os.MkdirAll(v.staging, 0o750))
	must(m.t, os.MkdirAll(filepath.Dir(v.target), 0o750))
	return v
}

func (v *volume) stage(ctx context.Context) error {
	_, err := v.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, VolumeCapability: v.capability, VolumeContext: v.context,
	})
	return err
}

func (v *volume) unstage(ctx context.Context) error {
	return unstageCall(v.id, v.staging)(ctx, v)
}

func (v *volume) publishRequest() *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, TargetPath: v.target, VolumeCapability: v.capability, VolumeContext: v.context,
	}
}

func (v *volume) publish(ctx context.Context) error {
	_, err := v.NodePublishVolume(ctx, v.publishRequest())
	return err
}

func (v *volume) unpublish(ctx context.Context) error {
	return unpublishCall(v.id, v.target)(ctx, v)
}

func (v *volume) expand(ctx context.Context, r *csi.CapacityRange) (int64, error) {
	answer, err := v.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: v.id, VolumePath: v.target, StagingTargetPath: v.staging, CapacityRange: r, VolumeCapability: v.capability,
	})
	return answer.GetCapacityBytes(), err
}

// usage is the volume's statistics at a path, by unit.
func (v *volume) usage(ctx context.Context, path string) (map[csi.VolumeUsage_Unit]*csi.VolumeUsage, error) {
	answer, err := v.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: path})
	all := map[csi.VolumeUsage_Unit]*csi.VolumeUsage{}
	for _, u := range answer.GetUsage() {
		all[u.GetUnit()] = u
	}
	return all, err
}

// ok fails the test unless every step succeeds.
func (m *machine) ok(steps ...func(context.Context) error) {
	m.t.Helper()
	for i, step := range steps {
		if err := step(m.t.Context()); err != nil {
			m.t.Fatalf("step %d = %v, want no error", i+1, err)
		}
	}
}

// gone takes the volume off the machine and proves that nothing of it is left.
func (v *volume) gone() {
	v.t.Helper()
	v.ok(v.unpublish, v.unpublish, v.unstage, v.unstage)
	if _, err := os.Lstat(v.target); !os.IsNotExist(err) {
		v.t.Errorf("the target is still there after unpublish: %v", err)
	}
	if left := mountsBelow(v.t, filepath.Dir(v.staging)); len(left) > 0 {
		v.t.Errorf("still mounted after unstage: %v", left)
	}
	for _, loop := range loopsBelow(v.dir) {
		if backingFile(loop) == v.image {
			v.t.Errorf("%s still holds the volume after unstage", loop)
		}
	}
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}

// wantRefusal wants an error with this code and these words.
func wantRefusal(t *testing.T, what string, err error, want codes.Code, words string) {
	t.Helper()
	wantCode(t, what, err, want)
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%s = %v, want it to name %q", what, err, words)
	}
}

func must1[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// sh runs a command and returns what it printed.
func sh(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, &out)
	}
	return out.String()
}
