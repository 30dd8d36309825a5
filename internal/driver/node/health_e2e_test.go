//go:build e2e

package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// shutDown does to a mounted filesystem what the loss of its device does: it stays in the mount table,
// and nothing works on it any more. The ioctl is the same for ext4 and xfs (XFS_IOC_GOINGDOWN).
func shutDown(t *testing.T, path string) {
	t.Helper()
	dir, err := os.Open(path)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(int(dir.Fd()), 0x8004587d, 2))
	must(t, dir.Close())
}

// health returns the reasons of NodeGetVolumeHealth, with their types.
func (v *volume) health(t *testing.T) []string {
	t.Helper()
	answer, err := v.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, VolumePublishPath: v.target,
	})
	must(t, err)
	if got := answer.GetVolumeHealth().GetVolumeId(); got != v.id {
		t.Errorf("the answer is about volume %q, want %q", got, v.id)
	}
	var reasons []string
	for _, s := range answer.GetVolumeHealth().GetHealthStatuses() {
		if s.GetMessage() == "" {
			t.Errorf("%s has no message", s.GetReason())
		}
		reasons = append(reasons, s.GetStatus().String()+" "+s.GetReason())
	}
	return reasons
}

// A4: the filesystem below the staging path died while it was mounted. Publish and stage refuse it, it is counted, and
// unstage and stage bring the volume back with its data.
func TestDeadMountIsNeverUsedAgain(t *testing.T) {
	t.Parallel()
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			m := newMachine(t, machineConfig{})
			v := m.newVolume(fs, sizeFor(fs))
			v.ok(v.stage, v.publish)
			want := randomFile(t, filepath.Join(v.target, "data"), mib)
			sh(t, "sync", "-f", v.target)
			if got := v.health(t); got != nil {
				t.Errorf("health of a sound volume = %v, want nothing", got)
			}
			shutDown(t, v.staging)
			if got := v.health(t); !slices.Equal(got, []string{"INACCESSIBLE FilesystemDead"}) {
				t.Errorf("health of a dead filesystem = %v", got)
			}
			before := mountTable(t, m.dir)
			second := v.publishRequest()
			second.TargetPath += "-second"
			_, err := v.NodePublishVolume(t.Context(), second)
			wantCode(t, "publish from a dead mount", err, codes.FailedPrecondition)
			wantCode(t, "publish again", v.publish(t.Context()), codes.FailedPrecondition)
			wantCode(t, "stage onto a dead mount", v.stage(t.Context()), codes.FailedPrecondition)
			if after := mountTable(t, m.dir); after != before {
				t.Errorf("the refused calls changed the mount table:\n%s", after)
			}
			if m.dead.Load() != 3 {
				t.Errorf("%d dead mounts were counted, want 3", m.dead.Load())
			}
			v.ok(v.unpublish, v.unstage, v.stage, v.publish)
			if got := sumOf(t, filepath.Join(v.target, "data")); got != want {
				t.Error("the file is not what was written")
			}
			if got := v.health(t); got != nil {
				t.Errorf("health after a new stage = %v, want nothing", got)
			}
			v.gone()
		})
	}
}

// A filesystem that the kernel has made read-only is not published to another pod for writing, and the next stage repairs it.
func TestAFilesystemThatTheKernelMadeReadOnly(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", 64*mib)
	v.ok(v.stage, v.publish)
	must(t, os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(loopsBelow(m.dir)[0]), "trigger_fs_error"), []byte("test"), 0o600))
	if got := v.health(t); !slices.Equal(got, []string{"DEGRADED FilesystemErrors", "DEGRADED FilesystemReadOnly"}) {
		t.Errorf("health = %v", got)
	}
	_, err := v.expand(t.Context(), &csi.CapacityRange{RequiredBytes: 128 * mib})
	wantRefusal(t, "expand", err, codes.FailedPrecondition, "read-only")
	v.ok(v.unpublish)
	wantRefusal(t, "publish", v.publish(t.Context()), codes.FailedPrecondition, "after an error")
	r := v.publishRequest()
	r.Readonly = true
	if _, err := v.NodePublishVolume(t.Context(), r); err != nil {
		t.Errorf("publish for reading = %v", err)
	}
	v.ok(v.unpublish, v.unstage, v.stage, v.publish)
	if got := v.health(t); got != nil {
		t.Errorf("health after a new stage = %v, want nothing", got)
	}
	v.gone()
}

// TestDiskThatFailsWhileMounted: the image below the device is cut off, so that every read and write of
// the disk fails. The health says so, and the volume can be unstaged.
func TestDiskThatFailsWhileMounted(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", 64*mib)
	v.ok(v.stage, v.publish)
	sh(t, "blockdev", "--flushbufs", loopsBelow(m.dir)[0]) // what blkid has read of it is in the cache
	must(t, os.Truncate(v.image, 0))
	// ext4 may have become read-only by then.
	if f, err := os.Create(filepath.Join(v.target, "lost")); err == nil {
		_, _ = f.Write(make([]byte, mib))
		t.Logf("a write on the failing disk: %v", errors.Join(f.Sync(), f.Close()))
	}
	got := v.health(t)
	t.Logf("health: %v", got)
	if len(got) == 0 {
		t.Error("health of a volume whose disk fails = nothing, want what is wrong")
	}
	v.ok(v.unpublish, v.unstage)
	if loops := loopsBelow(m.dir); len(loops) > 0 {
		t.Errorf("unstage left %v", loops)
	}
}

// TestHealthOfWhatIsNotStaged: a volume may be asked about before it is staged, and at a path where
// something else is mounted.
func TestHealthOfWhatIsNotStaged(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v, other := m.newVolume("ext4", 32*mib), m.newVolume("ext4", 32*mib)
	if got := v.health(t); got != nil {
		t.Errorf("health of a volume that is not staged = %v, want nothing", got)
	}
	other.ok(other.stage)
	v.ok(v.stage)
	w := *v
	w.target = other.staging
	if got := w.health(t); !slices.Equal(got, []string{"INACCESSIBLE PathInUse"}) {
		t.Errorf("health at the path of another volume = %v", got)
	}
	for name, tc := range map[string]struct {
		req  *csi.NodeGetVolumeHealthRequest
		code codes.Code
	}{
		"no id":                         {&csi.NodeGetVolumeHealthRequest{}, codes.InvalidArgument},
		"a relative path":               {&csi.NodeGetVolumeHealthRequest{VolumeId: v.id, StagingTargetPath: "x"}, codes.InvalidArgument},
		"a volume that does not exist":  {&csi.NodeGetVolumeHealthRequest{VolumeId: anyGoodID}, codes.NotFound},
		"an id that no volume can have": {&csi.NodeGetVolumeHealthRequest{VolumeId: "vol-1"}, codes.NotFound},
	} {
		_, err := v.NodeGetVolumeHealth(t.Context(), tc.req)
		wantCode(t, "health with "+name, err, tc.code)
	}
	v.gone()
	other.gone()
}

// TestStorageHealthOfASoundPool: nothing is wrong, and that is not an error.
func TestStorageHealthOfASoundPool(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	answer, err := m.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
	if err != nil || len(answer.GetBackendHealth()) > 0 {
		t.Errorf("NodeGetStorageHealth = %v, %v, want nothing wrong", answer, err)
	}
}

// F11: on a filesystem with open files an error means that nothing changed, and a retry succeeds.
func TestUnstageRefusesUntilTheLastTargetIsGone(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("xfs", sizeFor("xfs"))
	v.ok(v.stage, v.publish)
	open := must1(os.Create(filepath.Join(v.staging, "open")))(t)
	before := mountTable(t, m.dir)
	wantCode(t, "unstage of a published volume", v.unstage(t.Context()), codes.FailedPrecondition)
	if after := mountTable(t, m.dir); after != before {
		t.Errorf("the mount table changed from\n%sto\n%s", before, after)
	}
	v.ok(v.unpublish)
	before = mountTable(t, m.dir)
	if err := v.unstage(t.Context()); err == nil {
		t.Error("unstage with an open file succeeded")
	}
	if after := mountTable(t, m.dir); after != before || len(loopsBelow(m.dir)) != 1 || !strings.Contains(after, v.staging) {
		t.Errorf("the refused unstage changed the mount table from\n%sto\n%s", before, after)
	}
	must(t, open.Close())
	v.gone()
}
