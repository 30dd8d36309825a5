//go:build e2e

package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// cloudMachine is this computer as a machine of a cloud: disks are attached from outside, and only
// stage and publish are told what they are called.
type cloudMachine struct {
	csi.NodeClient
	t            *testing.T
	dir, records string
}

func newCloudMachine(t *testing.T, dir string) *cloudMachine {
	t.Helper()
	m := &cloudMachine{t: t, dir: dir, records: filepath.Join(dir, "records")}
	links := filepath.Join(dir, "by-id")
	must(t, os.MkdirAll(links, 0o700))
	m.NodeClient = serveWith(t, node.Config{
		Devices: device.NewByID(device.ByIDConfig{DeviceDir: links}), Records: device.NewRecords(m.records),
		Formats: device.NewFormats(filepath.Join(dir, "formats")), Mounter: mount.New(mount.Config{}),
	}, driver.Config{})
	return m
}

// attach does what the cloud does: the disk appears, and a link to it.
func (m *cloudMachine) attach(id, fs string, size int64) *volume {
	m.t.Helper()
	name := "cloud_" + filepath.Base(m.dir) + "_" + id // unique on this computer
	base := filepath.Join(m.dir, "kubelet-"+id)
	v := &volume{
		machine: &machine{NodeClient: m.NodeClient, t: m.t, dir: m.dir}, id: id, image: filepath.Join(m.dir, name+".img"),
		staging: filepath.Join(base, "staging"), target: filepath.Join(base, "pod", "target"), capability: programs.Claim{Filesystem: fs}.Capability(),
		context: names.EncodeVolumeContext(driver.VolumeContext{DeviceName: name, Size: size, Content: driver.ContentBlank}),
	}
	must(m.t, os.MkdirAll(v.staging, 0o750))
	must(m.t, os.MkdirAll(filepath.Dir(v.target), 0o750))
	must(m.t, os.WriteFile(v.image, nil, 0o600))
	must(m.t, os.Truncate(v.image, size))
	loop := strings.TrimSpace(sh(m.t, "losetup", "--find", "--show", v.image))
	must(m.t, os.Symlink(loop, filepath.Join(m.dir, "by-id", name)))
	return v
}

// TestCloudDiskIsKnownByItsVolume: unpublish, unstage, expand and the others name nothing but a volume and
// a path. The disk is found all the same, by another program than the one that staged it, and also
// when nothing was ever written down, as after a vendor's driver was replaced.
func TestCloudDiskIsKnownByItsVolume(t *testing.T) {
	t.Parallel()
	for _, fs := range []string{"ext4", "xfs", ""} {
		for _, remembered := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s remembered=%v", kindName(fs), remembered), func(t *testing.T) {
				dir := newDir(t)
				v := newCloudMachine(t, dir).attach("v1", fs, sizeFor(fs))
				v.ok(v.stage, v.stage, v.publish)
				next := newCloudMachine(t, dir)
				v.NodeClient = next.NodeClient
				if !remembered {
					must(t, os.RemoveAll(next.records))
				}
				if usage, err := v.usage(t.Context(), v.target); err != nil || usage[csi.VolumeUsage_BYTES].GetTotal() < sizeFor(fs)/2 {
					t.Errorf("usage = %v, %v", usage, err)
				}
				if _, err := v.usage(t.Context(), v.staging); err != nil {
					t.Errorf("usage at the staging path = %v", err)
				}
				answer, err := v.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: v.id, VolumePublishPath: v.target})
				if err != nil || len(answer.GetVolumeHealth().GetHealthStatuses()) > 0 {
					t.Errorf("health = %v, %v", answer, err)
				}
				grown := growCloudDisk(t, v)
				size, err := v.expand(t.Context(), &csi.CapacityRange{RequiredBytes: grown})
				if fs == "ext4" && !mounts.GrowsExt4(t) {
					wantCode(t, "expand of a mounted ext4 without the capability", err, codes.FailedPrecondition)
				} else if err != nil || size != grown {
					t.Errorf("expand = %d, %v, want %d", size, err, grown)
				}
				v.ok(v.publish)
				v.goneButForTheDisk()
				if left, err := filepath.Glob(filepath.Join(next.records, "*")); err != nil || len(left) > 0 {
					t.Errorf("still written down after unstage: %v, %v", left, err)
				}
			})
		}
	}
}

func kindName(fs string) string {
	if fs == "" {
		return "block"
	}
	return fs
}

// goneButForTheDisk is gone for a disk that stays until the cloud takes it away.
func (v *volume) goneButForTheDisk() {
	v.t.Helper()
	v.ok(v.unpublish, v.unpublish, v.unstage, v.unstage)
	if left := mountsBelow(v.t, filepath.Dir(v.staging)); len(left) > 0 {
		v.t.Errorf("still mounted after unstage: %v", left)
	}
}

func growCloudDisk(t *testing.T, v *volume) int64 {
	t.Helper()
	st, err := os.Stat(v.image)
	must(t, err)
	must(t, os.Truncate(v.image, 2*st.Size()))
	sh(t, "losetup", "--set-capacity", loopOf(t, v))
	return 2 * st.Size()
}

// F4: what is another volume's is left alone, whatever path a call names.
func TestCloudDiskOfAnotherVolumeIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := newCloudMachine(t, newDir(t))
	a, b := m.attach("a", "ext4", 64*mib), m.attach("b", "", 64*mib)
	a.ok(a.stage, a.publish)
	b.ok(b.stage, b.publish)
	before := mountTable(t, m.dir)
	for _, id := range []string{"b", "never-staged"} {
		stranger := *a
		stranger.id = id
		wantCode(t, "unpublish of a by "+id, stranger.unpublish(t.Context()), codes.FailedPrecondition)
		wantCode(t, "unstage of a by "+id, stranger.unstage(t.Context()), codes.FailedPrecondition)
		if _, err := stranger.usage(t.Context(), a.target); err == nil {
			t.Errorf("usage of a by %s = nil, want an error", id)
		}
	}
	// Nor does it help to spec a's disk: the refused calls leave nothing behind that a later one could use.
	claimant := *a
	claimant.id = "claimant"
	claimant.staging, claimant.target = filepath.Join(m.dir, "claimant"), filepath.Join(m.dir, "claimant-target")
	must(t, os.MkdirAll(claimant.staging, 0o750))
	wantCode(t, "stage of a's disk", claimant.stage(t.Context()), codes.FailedPrecondition)
	claimant.staging = a.staging
	wantCode(t, "publish of a's disk", claimant.publish(t.Context()), codes.FailedPrecondition)
	claimant.target = a.target
	wantCode(t, "unpublish of a's disk", claimant.unpublish(t.Context()), codes.FailedPrecondition)
	wantCode(t, "unstage of a's disk", claimant.unstage(t.Context()), codes.FailedPrecondition)
	if after := mountTable(t, m.dir); after != before {
		t.Errorf("the mounts were\n%s\nand are\n%s", before, after)
	}
	a.goneButForTheDisk()
	b.goneButForTheDisk()
}

// A stage that failed leaves nothing written down, one that left a mount behind does.
func TestFailedStageOfACloudDiskIsForgotten(t *testing.T) {
	t.Parallel()
	m := newCloudMachine(t, newDir(t))
	v := m.attach("v", "ext4", 64*mib)
	v.write(t, 0, "somebody's data")
	wantCode(t, "stage", v.stage(context.Background()), codes.FailedPrecondition)
	if left, err := filepath.Glob(filepath.Join(m.records, "*")); err != nil || len(left) > 0 {
		t.Errorf("written down: %v, %v", left, err)
	}
}

// F4: the record of a volume that went without an unstage, as from a machine that died, keeps no later volume with the
// same disk's name from it.
func TestRecordOfAVolumeThatIsGoneGivesWay(t *testing.T) {
	t.Parallel()
	m := newCloudMachine(t, newDir(t))
	old := m.attach("old", "ext4", 64*mib)
	old.ok(old.stage)
	must(t, mounts.Unmount(old.staging))
	young := *old
	young.id = "young"
	young.ok(young.stage, young.publish)
	wantCode(t, "unpublish by the volume that is gone", old.unpublish(t.Context()), codes.FailedPrecondition)
	young.ok(young.unpublish, young.unstage)
	if left, err := filepath.Glob(filepath.Join(m.records, "*")); err != nil || len(left) > 0 {
		t.Errorf("written down: %v, %v", left, err)
	}
}
