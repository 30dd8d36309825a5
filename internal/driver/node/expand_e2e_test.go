//go:build e2e

package node_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// TestExt4WithoutTheCapability: the image grows, the answer names the capability, and the volume is staged with the
// size that its filesystem has.
func TestExt4WithoutTheCapability(t *testing.T) {
	t.Parallel()
	if mounts.GrowsExt4(t) {
		t.Skip("this root has CAP_SYS_RESOURCE")
	}
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", 64*mib)
	v.ok(v.stage, v.publish)
	for range 2 {
		_, err := v.expand(t.Context(), &csi.CapacityRange{RequiredBytes: 128 * mib})
		wantRefusal(t, "expand", err, codes.FailedPrecondition, "CAP_SYS_RESOURCE")
		v.ok(v.unpublish, v.unstage, v.stage, v.publish)
	}
	if got := v.total(t); got > 64*mib {
		t.Errorf("the volume shows %d bytes, want no more than before", got)
	}
	v.gone()
	checkClean(t, "ext4", v.image)
}

// TestExt4ThatNoKernelGrows: the answer does not block the mount of the next pod, which gets the size that the filesystem has.
func TestExt4ThatNoKernelGrows(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", 64*mib)
	said, err := names.DecodeVolumeContext(v.context)
	must(t, err)
	said.MkfsOptions = []string{"-O", "sparse_super2"}
	v.context = names.EncodeVolumeContext(said)
	v.ok(v.stage, v.publish)
	for range 2 {
		_, err := v.expand(t.Context(), &csi.CapacityRange{RequiredBytes: 128 * mib})
		wantRefusal(t, "expand", err, codes.FailedPrecondition, "sparse_super2")
		v.ok(v.stage, v.unpublish, v.unstage, v.stage, v.publish)
	}
	v.gone()
	sh(t, "e2fsck", "-f", "-p", v.image)
	sh(t, "resize2fs", v.image)
	v.ok(v.stage, v.publish)
	if got := v.total(t); got < 100*mib {
		t.Errorf("after resize2fs the volume shows %d bytes, want nearly %d", got, 128*mib)
	}
	v.gone()
}

func (v *volume) total(t *testing.T) int64 {
	t.Helper()
	got, err := v.usage(t.Context(), v.target)
	must(t, err)
	return got[csi.VolumeUsage_BYTES].GetTotal()
}

// E1, E3, E5: device and filesystem grow, a repeat is cheap, nothing shrinks, and the grown volume unmounts, checks
// clean and mounts again.
func TestExpandPublishedVolume(t *testing.T) {
	t.Parallel()
	for _, fs := range append(filesystems, "") {
		t.Run("kind "+fs, func(t *testing.T) {
			mounts.NeedsToGrow(t, fs)
			m := newMachine(t, machineConfig{})
			small := sizeFor(fs)
			large := 2 * small
			v := m.newVolume(fs, small)
			v.ok(v.stage, v.publish)
			var sum string
			if fs != "" {
				sum = randomFile(t, filepath.Join(v.target, "data"), mib)
			}
			size, err := v.expand(t.Context(), &csi.CapacityRange{RequiredBytes: large})
			if err != nil || size != large {
				t.Errorf("expand = %d, %v, want %d", size, err, large)
			}
			if got := sizeOf(t, v.image); got != large {
				t.Errorf("the image has %d bytes, want %d", got, large)
			}
			if got := v.total(t); got < large*4/5 {
				t.Errorf("the volume shows %d bytes, want nearly %d", got, large)
			}
			start := time.Now()
			for _, r := range []*csi.CapacityRange{{RequiredBytes: large}, {RequiredBytes: small}, nil, {LimitBytes: large}} {
				size, err := v.expand(t.Context(), r)
				if err != nil || size != large {
					t.Errorf("expand to %v again = %d, %v, want %d and no error", r, size, err, large)
				}
			}
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("four repeats took %s, want them cheap", took)
			}
			_, err = v.expand(t.Context(), &csi.CapacityRange{LimitBytes: small})
			wantCode(t, "expand to a limit below the present size", err, codes.OutOfRange)
			v.ok(v.unpublish, v.unstage)
			checkClean(t, fs, v.image)
			v.ok(v.stage, v.publish)
			if fs != "" && sumOf(t, filepath.Join(v.target, "data")) != sum {
				t.Error("the file changed")
			}
			v.gone()
		})
	}
}

// checkClean runs the filesystem's own checker on an image that is not attached.
func checkClean(t *testing.T, fs, image string) {
	t.Helper()
	switch fs {
	case "ext4":
		sh(t, "e2fsck", "-f", "-n", image)
	case "xfs":
		sh(t, "xfs_repair", "-n", image)
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

// E3: a size that is too large is OutOfRange at once, and nothing grows.
func TestExpandRefusals(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("xfs", sizeFor("xfs"))
	v.ok(v.stage, v.publish)
	for name, r := range map[string]*csi.CapacityRange{
		"more than any volume has":           {RequiredBytes: 1 << 62},
		"more than the pool has":             {RequiredBytes: pool.LargestVolume},
		"the largest number":                 {RequiredBytes: 1<<63 - 1},
		"less than nothing":                  {RequiredBytes: -1},
		"more than the limit":                {RequiredBytes: 500 * mib, LimitBytes: 400 * mib},
		"no step between size and limit":     {RequiredBytes: 400*mib + 1, LimitBytes: 400*mib + 2},
		"a limit below the size that it has": {LimitBytes: 100 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := v.expand(t.Context(), r)
			wantCode(t, "expand", err, codes.OutOfRange)
			if got := sizeOf(t, v.image); got != sizeFor("xfs") {
				t.Errorf("the image has %d bytes, want %d as before", got, sizeFor("xfs"))
			}
		})
	}
	w := *v
	w.capability = blockCapability(oneNode)
	_, err := w.expand(t.Context(), &csi.CapacityRange{RequiredBytes: 400 * mib})
	wantCode(t, "expand with the other access type", err, codes.InvalidArgument)
	w = *v
	w.target = m.dir
	_, err = w.expand(t.Context(), nil)
	wantCode(t, "expand at a path of the machine", err, codes.NotFound)
	if got := sizeOf(t, v.image); got != sizeFor("xfs") {
		t.Errorf("the image has %d bytes, want %d as before", got, sizeFor("xfs"))
	}
	v.gone()
	_, err = v.expand(t.Context(), nil)
	wantCode(t, "expand of what is not staged", err, codes.NotFound)
}

// TestExpandThroughAReadOnlyTarget: the filesystem grows through the staging path.
func TestExpandThroughAReadOnlyTarget(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	const fs = "xfs"
	v := m.newVolume(fs, sizeFor(fs))
	v.ok(v.stage)
	r := v.publishRequest()
	r.Readonly = true
	_, err := v.NodePublishVolume(t.Context(), r)
	must(t, err)
	if _, err := v.expand(t.Context(), &csi.CapacityRange{RequiredBytes: 2 * sizeFor(fs)}); err != nil {
		t.Errorf("%s: expand of a volume published read-only = %v, want no error", fs, err)
	}
	if got := v.total(t); got < sizeFor(fs)*3/2 {
		t.Errorf("%s: the volume shows %d bytes, want nearly %d", fs, got, 2*sizeFor(fs))
	}
	v.gone()
}

// TestExpandOfAVolumeThatIsStagedReadOnly: the answer does not block the mount of the next pod.
func TestExpandOfAVolumeThatIsStagedReadOnly(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	for _, fs := range filesystems {
		v := m.newVolume(fs, sizeFor(fs))
		v.ok(v.stage, v.unstage)
		v.capability.GetMount().MountFlags = []string{"ro"}
		v.ok(v.stage, v.publish)
		for range 2 {
			_, err := v.expand(t.Context(), &csi.CapacityRange{RequiredBytes: 2 * sizeFor(fs)})
			wantRefusal(t, fs+": expand", err, codes.FailedPrecondition, "it is mounted read-only")
		}
		v.ok(v.stage)
		v.gone()
	}
}

// C9, E5: what was restored from a smaller volume has the size that was asked for.
func TestStageGrowsAFilesystemThatIsSmallerThanItsDevice(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	for _, fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			mounts.NeedsToGrow(t, fs)
			source, restored := m.newVolume(fs, sizeFor(fs)), m.newVolume(fs, 2*sizeFor(fs))
			source.ok(source.stage, source.publish)
			want := randomFile(t, filepath.Join(source.target, "data"), mib)
			source.gone()
			sh(t, "dd", "if="+source.image, "of="+restored.image, "bs=1M", "conv=notrunc", "status=none")
			restored.context = names.EncodeVolumeContext(driver.VolumeContext{Content: driver.ContentCopy, Size: 2 * sizeFor(fs)})
			restored.ok(restored.stage, restored.publish)
			if got := restored.total(t); got < sizeFor(fs)*8/5 {
				t.Errorf("the restored volume shows %d bytes, want nearly %d", got, 2*sizeFor(fs))
			}
			if got := sumOf(t, filepath.Join(restored.target, "data")); got != want {
				t.Error("the restored file is not what was written")
			}
			source.ok(source.stage)
			source.gone()
			restored.gone()
		})
	}
}
