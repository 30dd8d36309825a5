package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// untouchable is a Resolver and a Backend with which each call but Disks fails the test: it would touch the device.
type untouchable struct {
	device.Resolver
	t    *testing.T
	pool []uint64
}

func (u untouchable) Lookup(context.Context, device.Spec) (*device.Device, error) {
	u.t.Error("the device was looked up")
	return nil, fault.Unavailable
}

func (u untouchable) Volume(context.Context, string) ([]mount.Health, error) {
	u.t.Error("the pool was read")
	return nil, fault.Unavailable
}

func (u untouchable) Storage(context.Context) ([]mount.Health, error) { return nil, nil }

func (u untouchable) Disks(*mount.Table, string) []uint64 { return u.pool }

// fakeDevice makes a block device of a sysfs on others, with requests in flight that it does not complete.
func fakeDevice(t *testing.T, dir, number string, inFlight int, below ...string) uint64 {
	t.Helper()
	folder := filepath.Join(dir, "dev/block", number)
	errs := []error{
		os.MkdirAll(filepath.Join(folder, "slaves"), 0o700),
		os.WriteFile(filepath.Join(folder, "dev"), []byte(number+"\n"), 0o600),
		os.WriteFile(filepath.Join(folder, "stat"), []byte(fmt.Sprintf("7 0 0 0 0 0 0 0 %d 0 0 0 0 0 0 0 0\n", inFlight)), 0o600),
	}
	for _, one := range below {
		errs = append(errs, os.Symlink(filepath.Join(dir, "dev/block", one), filepath.Join(folder, "slaves", one)))
	}
	must(t, errors.Join(errs...))
	n, err := host.DeviceNumber(number)
	must(t, err)
	return n
}

// While a device of a volume is stalled, health and statistics touch nothing of it, whichever device of the stack it is: the device
// itself, the disk of a mapping, or the disk of the pool.
func TestNothingTouchesAVolumeThatIsStalled(t *testing.T) {
	const id = "node-a/default/0123456789abcdef0123456789abcdef"
	for name, hangs := range map[string]string{"the device itself": "253:1", "the disk below it": "254:16", "the disk of the pool": "254:32"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inFlight := map[string]int{hangs: 3}
			pool := fakeDevice(t, dir, "254:32", inFlight["254:32"])
			disk := fakeDevice(t, dir, "254:16", inFlight["254:16"])
			used := fakeDevice(t, dir, "253:1", inFlight["253:1"], "254:16")
			synctest.Test(t, func(t *testing.T) {
				u := untouchable{t: t, pool: []uint64{pool}}
				s := New(Config{Devices: u, Backend: u, Mounter: mount.New(mount.Config{Sysfs: host.Sysfs(dir)})})
				s.volumes.staged[id] = &Staged{Volume: id, Device: used}
				if got := s.Staged(); len(got) != 1 || got[0].Stats.Reads.Completed != 7 {
					t.Errorf("Staged = %+v, want the counters of the device", got)
				}
				s.mounts.Stalls.Watch([]uint64{pool, disk, used})
				time.Sleep(host.StallTime)
				answer, err := s.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: id, StagingTargetPath: "/kubelet/staging"})
				found := answer.GetVolumeHealth().GetHealthStatuses()
				if err != nil || len(found) != 1 || found[0].GetReason() != mount.ReasonStalled || found[0].GetStatus() != csi.VolumeHealthErrorType_INACCESSIBLE ||
					!strings.Contains(found[0].GetMessage(), "("+hangs+")") {
					t.Errorf("NodeGetVolumeHealth = %v, %v, want %s of %s", found, err, mount.ReasonStalled, hangs)
				}
				_, err = s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: "/kubelet/target"})
				if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "("+hangs+")") {
					t.Errorf("NodeGetVolumeStats = %v, want %v", err, fault.Unavailable)
				}
			})
		})
	}
}

// hanging is a Backend whose disk hangs: it answers when its caller goes.
type hanging struct{ untouchable }

func (h hanging) Volume(ctx context.Context, _ string) ([]mount.Health, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (h hanging) Storage(ctx context.Context) ([]mount.Health, error) { return h.Volume(ctx, "") }

// The kubelet waits two minutes for an answer, and asks each minute. A question to storage that has just begun to hang ends soon, so the
// next answer has the stall in time.
func TestAHealthCallDoesNotWaitForStorageThatHangs(t *testing.T) {
	dir := t.TempDir()
	used := fakeDevice(t, dir, "253:1", 3)
	synctest.Test(t, func(t *testing.T) {
		b := hanging{untouchable{t: t}}
		s := New(Config{Devices: b, Backend: b, Mounter: mount.New(mount.Config{Sysfs: host.Sysfs(dir)})})
		s.volumes.staged["v"] = &Staged{Volume: "v", Device: used}
		s.mounts.Stalls.Watch([]uint64{used})
		began := time.Now()
		_, err := s.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: "v"})
		_, storageErr := s.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
		if !errors.Is(err, fault.Unavailable) || !errors.Is(storageErr, fault.Unavailable) || time.Since(began) > host.StallTime {
			t.Errorf("health = %v and %v after %v", err, storageErr, time.Since(began))
		}
	})
}

// What is left of a volume in the metrics goes with its unstage, whatever the last reading was.
func TestAnUnstagedVolumeIsNoLongerStalled(t *testing.T) {
	dir := t.TempDir()
	number := fakeDevice(t, dir, "7:1", 1)
	m := &lastHealth{}
	s := New(Config{Metrics: m, Mounter: mount.New(mount.Config{Sysfs: host.Sysfs(dir)})})
	v := &Staged{Volume: "v", Device: number}
	s.volumes.staged["v"] = v
	s.noteStalled(v, true)
	if len(m.reasons) != 1 || m.reasons[0] != mount.ReasonStalled {
		t.Errorf("the metrics have %v", m.reasons)
	}
	s.sample() // nothing is mounted where the volume was
	if len(m.reasons) > 0 || len(s.Staged()) > 0 {
		t.Errorf("without its mount the metrics have %v, and staged is %v", m.reasons, s.Staged())
	}
	s.volumes.staged["v"] = v
	s.noteStalled(v, true)
	s.noteUnstaged("v")
	if len(m.reasons) > 0 || len(s.Staged()) > 0 {
		t.Errorf("after the unstage the metrics have %v, and staged is %v", m.reasons, s.Staged())
	}
}

// slow is a Resolver without disks whose Release waits.
type slow struct {
	device.Resolver
	begun, end chan struct{}
}

func (slow) Number(context.Context, device.Spec) (uint64, error) { return 0, fault.NotFound }

func (r slow) Release(context.Context, device.Spec) error {
	close(r.begun)
	<-r.end
	return nil
}

// An unstage whose caller has gone leaves nothing of the volume in the metrics either.
func TestAnUnstageWithoutACallerEndsTheHealth(t *testing.T) {
	dir, m, r := t.TempDir(), &lastHealth{}, slow{begun: make(chan struct{}), end: make(chan struct{})}
	s := New(Config{Metrics: m, Devices: r, Mounter: mount.New(mount.Config{Dir: dir, Sysfs: host.Sysfs(t.TempDir())})})
	s.volumes.staged["v"] = &Staged{Volume: "v"}
	m.Health("v", []string{"FilesystemErrors"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-r.begun; cancel() }()
	_, err := s.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: filepath.Join(dir, "staging")})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("NodeUnstageVolume = %v, want %v", err, context.Canceled)
	}
	close(r.end)
	must(t, s.Wait(t.Context()))
	if len(m.reasons) > 0 || len(s.volumes.staged) > 0 {
		t.Errorf("after the unstage the metrics have %v, and staged is %v", m.reasons, s.volumes.staged)
	}
}

// A measurement that ends after the unstage leaves nothing of the volume in the metrics.
func TestAnUnstagedVolumeHasNoHealth(t *testing.T) {
	m := &lastHealth{}
	s := New(Config{Metrics: m, Mounter: mount.New(mount.Config{})})
	dir := t.TempDir()
	table, err := s.mounts.Table()
	must(t, err)
	around, err := table.MountOf(dir)
	must(t, err)
	around.Mountpoint, around.Options, around.VFSOptions = dir, "rw", "ro"
	at := mount.State{Path: dir, Use: mount.Ours, Mount: around}
	s.noteHealth(t.Context(), "v", at)
	if len(m.reasons) != 1 || m.reasons[0] != "FilesystemReadOnly" {
		t.Errorf("of a volume that is mounted the metrics have %v", m.reasons)
	}
	s.noteUnstaged("v")
	at.Mount.ID++ // the mount of the volume was unmounted
	s.noteHealth(t.Context(), "v", at)
	if len(m.reasons) > 0 {
		t.Errorf("after the unstage the metrics have %v", m.reasons)
	}
}

// An unstage releases the device of a volume whose health is being read: what the mount table had is neither dead nor another volume's.
func TestTheHealthDuringAnUnstage(t *testing.T) {
	s, dir := New(Config{Mounter: mount.New(mount.Config{})}), t.TempDir()
	table, err := s.mounts.Table()
	must(t, err)
	around, err := table.MountOf(dir)
	must(t, err)
	around.Mountpoint = dir
	gone := around
	gone.ID++ // unmounted
	for _, use := range []mount.Use{mount.Dead, mount.Foreign} {
		if got, err := s.healthAt(t.Context(), mount.State{Path: dir, Use: use, Mount: around}); len(got) != 1 || err != nil {
			t.Errorf("health at a mount = %v, %v, want what is wrong", got, err)
		}
		if got, err := s.healthAt(t.Context(), mount.State{Path: dir, Use: use, Mount: gone}); len(got) > 0 || err != nil {
			t.Errorf("health at a mount that has gone = %v, %v, want nothing", got, err)
		}
	}
}

// lastHealth is a Metrics that keeps the last reasons.
type lastHealth struct {
	noMetrics
	reasons []string
}

func (m *lastHealth) Health(_ string, reasons []string) { m.reasons = reasons }
