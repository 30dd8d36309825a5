//go:build e2e

package node_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// F1: a raw block volume holds data where nothing but the pool knows of it, and is then staged as a filesystem.
func TestVolumeThatWasWrittenIsNeverFormatted(t *testing.T) {
	t.Parallel()
	const size, gap = 1024 * mib, 203 * mib // the probe reads 4 KiB of every 8 MiB
	for _, fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			m := newMachine(t, machineConfig{})
			v := m.newVolume("", size)
			v.ok(v.stage, v.publish)
			f, err := os.OpenFile(v.target, os.O_WRONLY, 0)
			must(t, err)
			data := make([]byte, 64<<10)
			_, _ = rand.Read(data)
			_, err = f.WriteAt(data, gap)
			must(t, err)
			must(t, f.Sync())
			must(t, f.Close())
			v.ok(v.unpublish, v.unstage)
			v.capability = mountCapability(fs, oneNode)
			v.refused(t, "stage of a written volume as "+fs, func() error { return v.stage(t.Context()) }, codes.FailedPrecondition, "written to")
			v.gone()
		})
	}
}

// F7: where the pool proves that nothing was ever written into the copy, it is as blank as its source.
func TestCopyOfAVolumeThatWasNeverFormatted(t *testing.T) {
	t.Parallel()
	for _, fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			m := newMachine(t, machineConfig{})
			v := m.newVolume(fs, sizeFor(fs))
			v.context = names.EncodeVolumeContext(driver.VolumeContext{Content: driver.ContentCopy, Size: sizeFor(fs)})
			v.ok(v.stage, v.publish, v.unpublish, v.unstage, v.stage)
			v.gone()
			w := m.newVolume("ext4", sizeFor("ext4"))
			w.write(t, 7*mib, "x")
			w.context = names.EncodeVolumeContext(driver.VolumeContext{Content: driver.ContentCopy, Size: sizeFor("ext4")})
			w.refused(t, "stage of a copy with content", func() error { return w.stage(t.Context()) }, codes.FailedPrecondition, "")
			w.gone()
		})
	}
}

// F1: on a cloud, nothing but its content says whether a volume was used that a PersistentVolume written by hand brings, and what was
// written may be where the gate does not look.
func TestExistingVolumeOfACloudIsNeverFormatted(t *testing.T) {
	t.Parallel()
	for _, fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			m := newCloudMachine(t, newDir(t))
			v := m.attach("v1", fs, sizeFor(fs))
			v.context = names.EncodeVolumeContext(driver.VolumeContext{DeviceName: m.diskName(v)})
			v.refused(t, "stage of an existing volume that reads as zeros", func() error { return v.stage(t.Context()) }, codes.FailedPrecondition, "never formatted")
			sh(t, "mkfs."+fs, "-q", filepath.Join(m.dir, "by-id", m.diskName(v)))
			v.ok(v.stage, v.publish)
			v.goneButForTheDisk()
		})
	}
}

// An ext4 that was there before the call is checked before it is mounted. One that the call itself has made is not.
func TestAnExistingExt4IsCheckedBeforeItsMount(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	wrap(t, `echo "${0##*/}" >>`+ran+"\n"+`exec "$real" "$@"`, "mkfs.ext4", "e2fsck", "mount")
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", 32*mib)
	for _, want := range []string{"mkfs.ext4 mount", "e2fsck mount", "e2fsck mount"} {
		must(t, v.stage(t.Context()))
		names, err := os.ReadFile(ran)
		if got := strings.Join(strings.Fields(string(names)), " "); err != nil || got != want {
			t.Errorf("a stage ran %q, %v, want %q", got, err, want)
		}
		must(t, v.unstage(t.Context()))
		must(t, os.Remove(ran))
	}
}
