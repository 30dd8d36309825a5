//go:build e2e

package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
)

// cutOff makes the disk of a volume as a mkfs leaves it that was killed before it wrote a signature, with its record.
func (m *cloudMachine) cutOff(v *volume, filesystem string) {
	m.t.Helper()
	disks := device.NewByID(device.ByIDConfig{DeviceDir: filepath.Join(m.dir, "by-id")})
	dev, err := disks.Open(m.t.Context(), device.Spec{Volume: v.id, Name: m.diskName(v), Size: 64 * mib})
	must(m.t, err)
	must(m.t, m.formats().Begin(dev, filesystem))
	must(m.t, dev.Close())
	v.write(m.t, 128*1024, "an inode table")
}

func (m *cloudMachine) diskName(v *volume) string {
	return strings.TrimSuffix(filepath.Base(v.image), ".img")
}

func (m *cloudMachine) formats() *device.Formats {
	return device.NewFormats(filepath.Join(m.dir, "formats"))
}

// again detaches the disk of a volume and attaches what its image file is now.
func (m *cloudMachine) again(v *volume) {
	m.t.Helper()
	link := filepath.Join(m.dir, "by-id", m.diskName(v))
	sh(m.t, "losetup", "-d", must1(os.Readlink(link))(m.t))
	must(m.t, os.Remove(link))
	must(m.t, os.Symlink(strings.TrimSpace(sh(m.t, "losetup", "--find", "--show", v.image)), link))
}

func (m *cloudMachine) wantRecord(v *volume, want bool) {
	m.t.Helper()
	files, err := filepath.Glob(filepath.Join(m.dir, "formats", "*.format"))
	must(m.t, err)
	if (len(files) > 0) != want {
		m.t.Errorf("the format records are %v, want one: %v", files, want)
	}
}

// F15: after a mkfs that was killed the same node formats the disk again, once, and the record is gone before the first mount.
func TestAFormatThatWasCutOff(t *testing.T) {
	m := newCloudMachine(t, newDir(t))
	for _, fs := range []string{"ext4", "xfs"} {
		v := m.attach("v-"+fs, fs, sizeFor(fs))
		m.cutOff(v, fs)
		m.wantRecord(v, true)
		v.ok(v.stage, v.stage)
		m.wantRecord(v, false)
		v.ok(v.unstage)
	}
}

// F15: without the removal of its record a new filesystem is not mounted, because a later stage could take what a pod has written for
// what a mkfs has left. Once the record can be removed, the filesystem is used.
func TestAFormatRecordThatCannotBeRemoved(t *testing.T) {
	m := newCloudMachine(t, newDir(t))
	v := m.attach("v", "ext4", 64*mib)
	records := filepath.Join(m.dir, "formats")
	must(t, os.MkdirAll(records, 0o700))
	wrap(t, `"$real" "$@" && mount --bind `+records+" "+records+" && mount -o remount,bind,ro "+records, "mkfs.ext4")
	err := v.stage(t.Context())
	wantCode(t, "stage", err, codes.Unavailable)
	if mounted := sh(t, "sh", "-c", "grep -c ' "+v.staging+" ' /proc/self/mountinfo || true"); strings.TrimSpace(mounted) != "0" {
		t.Errorf("%s lines of the mount table have the staging path", mounted)
	}
	sh(t, "umount", records)
	m.wantRecord(v, true)
	v.ok(v.stage)
	m.wantRecord(v, false)
	v.ok(v.unstage)
}

// F13, F14, F15: a record that is not of this disk, of this filesystem and of this very attachment formats nothing.
func TestAStaleFormatRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(t *testing.T, m *cloudMachine, v *volume)
		words   string // of the refusal; none: it is staged
	}{
		"the volume was elsewhere meanwhile, and has raw data": {func(_ *testing.T, m *cloudMachine, v *volume) { m.again(v) }, "CB-FORMAT-UNFINISHED"},
		"the volume was elsewhere meanwhile, and was formatted there": {func(t *testing.T, m *cloudMachine, v *volume) {
			sh(t, "mkfs.ext4", "-q", "-F", v.image)
			m.again(v)
		}, ""},
		"a filesystem was made by hand": {func(t *testing.T, m *cloudMachine, v *volume) {
			sh(t, "mkfs.ext4", "-q", "-F", must1(os.Readlink(filepath.Join(m.dir, "by-id", m.diskName(v))))(t))
		}, ""},
		"another filesystem was made by hand": {func(t *testing.T, m *cloudMachine, v *volume) {
			sh(t, "mkswap", must1(os.Readlink(filepath.Join(m.dir, "by-id", m.diskName(v))))(t))
		}, "swap"},
		"the record is of an older disk with the same id": {func(t *testing.T, m *cloudMachine, v *volume) {
			must(t, os.Remove(v.image))
			must(t, os.WriteFile(v.image, nil, 0o600))
			must(t, os.Truncate(v.image, 64*mib))
			v.write(t, 7*mib, "data of the new disk")
			v.write(t, 64*mib-5, "more")
			m.again(v)
		}, "CB-FORMAT-UNFINISHED"},
		"the record is of another filesystem": {func(t *testing.T, m *cloudMachine, v *volume) { m.cutOff(v, "xfs") }, "CB-FORMAT-UNFINISHED"},
		"the record is of an earlier boot": {func(t *testing.T, m *cloudMachine, v *volume) {
			files := must1(filepath.Glob(filepath.Join(m.dir, "formats", "*.format")))(t)
			boot := strings.TrimSpace(string(must1(os.ReadFile("/proc/sys/kernel/random/boot_id"))(t)))
			text := string(must1(os.ReadFile(files[0]))(t))
			if !strings.Contains(text, boot) {
				t.Fatalf("the record %s has no boot id", text)
			}
			must(t, os.WriteFile(files[0], []byte(strings.Replace(text, boot, "0-0", 1)), 0o600))
		}, "CB-FORMAT-UNFINISHED"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newCloudMachine(t, newDir(t))
			v := m.attach("v", "ext4", 64*mib)
			m.cutOff(v, "ext4")
			tc.happens(t, m, v)
			if tc.words == "" {
				v.ok(v.stage)
				m.wantRecord(v, false)
				v.ok(v.unstage)
				return
			}
			before := sh(t, "sha256sum", v.image)
			calls := countMkfs(t)
			wantRefusal(t, "stage", v.stage(t.Context()), codes.FailedPrecondition, tc.words)
			if after := sh(t, "sha256sum", v.image); after != before || calls() > 0 {
				t.Errorf("the disk was changed (%d mkfs)", calls())
			}
		})
	}
}

// F15: a raw block volume is its user's from the first stage, so that no later record of a format is left to count on it.
func TestARawVolumeEndsTheRecord(t *testing.T) {
	m := newCloudMachine(t, newDir(t))
	v := m.attach("v", "", 64*mib)
	m.cutOff(v, "ext4")
	inUse := must1(os.OpenFile(must1(os.Readlink(filepath.Join(m.dir, "by-id", m.diskName(v))))(t), os.O_RDONLY|unix.O_EXCL, 0))(t)
	wantCode(t, "stage of a disk that is in use", v.stage(t.Context()), codes.Aborted)
	m.wantRecord(v, true)
	must(t, inUse.Close())
	v.ok(v.stage)
	m.wantRecord(v, false)
	v.ok(v.unstage)
}
