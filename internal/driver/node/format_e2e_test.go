//go:build e2e

package node_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
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
			w.context = v.context
			f, err := os.OpenFile(w.image, os.O_WRONLY, 0)
			must(t, err)
			_, err = unix.Pwrite(int(f.Fd()), []byte("x"), 7*mib)
			must(t, err)
			must(t, f.Close())
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
