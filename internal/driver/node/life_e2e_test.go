//go:build e2e

package node_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

func TestMain(m *testing.M) { loops.Main(m) }

var filesystems = []string{"ext4", "xfs"}

// TestLifeOfAVolume takes a volume of each kind through its life, every step twice, with real data.
func TestLifeOfAVolume(t *testing.T) {
	t.Parallel()
	for _, fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			m := newMachine(t, machineConfig{})
			v := m.newVolume(fs, sizeFor(fs))
			v.ok(v.stage, v.stage, v.publish, v.publish)
			file := filepath.Join(v.target, "data")
			want := randomFile(t, file, 4*mib)
			other := filepath.Join(filepath.Dir(v.target), "second")
			v.ok(func(ctx context.Context) error {
				r := v.publishRequest()
				r.TargetPath, r.Readonly = other, true
				_, err := v.NodePublishVolume(ctx, r)
				return err
			})
			if err := os.WriteFile(filepath.Join(other, "x"), nil, 0o600); err == nil {
				t.Error("a read-only target took a write")
			}
			must(t, os.WriteFile(filepath.Join(v.target, "y"), nil, 0o600))
			v.ok(func(ctx context.Context) error { return unpublishCall(v.id, other)(ctx, v) })
			v.gone()

			v.ok(v.stage, v.publish)
			if got := sumOf(t, file); got != want {
				t.Error("the file is not what was written before unstage")
			}
			v.gone()
			expect.Kind(t, "Delete of an unstaged volume", m.pool.Delete(t.Context(), must1(m.pool.FindByName(t.Context(), "pvc-0"))(t).Record.ID), fault.None)
		})
	}
}

func TestLifeOfARawBlockVolume(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("", 32*mib)
	v.ok(v.stage, v.stage, v.publish, v.publish)
	var st unix.Stat_t
	must(t, unix.Stat(v.target, &st))
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		t.Fatalf("the target has mode %o, want a block device", st.Mode)
	}
	block := bytes.Repeat([]byte("raw "), 1024)
	f, err := os.OpenFile(v.target, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(block, 32*mib-int64(len(block)))
	must(t, err)
	if _, err := f.WriteAt(block, 32*mib); err == nil {
		t.Error("a write past the size succeeded")
	}
	must(t, f.Sync())
	must(t, f.Close())
	v.gone()

	v.ok(v.stage, v.publish)
	f, err = os.Open(v.target)
	must(t, err)
	got := make([]byte, len(block))
	_, err = f.ReadAt(got, 32*mib-int64(len(block)))
	must(t, err)
	must(t, f.Close())
	if !bytes.Equal(got, block) {
		t.Error("the last block is not what was written before unstage")
	}
	v.gone()
}

// P6: both kinds are measured, at the staging and at the target path.
func TestStatsOfFilesystemAndBlock(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	for _, fs := range append(filesystems, "") {
		t.Run("kind "+fs, func(t *testing.T) {
			v := m.newVolume(fs, sizeFor(fs))
			v.ok(v.stage, v.publish)
			for _, path := range []string{v.staging, v.target} {
				got, err := v.usage(t.Context(), path)
				must(t, err)
				b, inodes := got[csi.VolumeUsage_BYTES], got[csi.VolumeUsage_INODES]
				if fs == "" {
					if b.GetTotal() != sizeFor(fs) {
						t.Errorf("stats at %s = %v, want %d bytes in all", path, got, sizeFor(fs))
					}
					continue
				}
				if b.GetTotal() < sizeFor(fs)/2 || b.GetTotal() > sizeFor(fs) || b.GetAvailable() <= 0 || b.GetUsed() < 0 {
					t.Errorf("stats at %s = %v, want bytes that fit %d", path, got, sizeFor(fs))
				}
				if inodes.GetTotal() <= 0 || inodes.GetAvailable() <= 0 {
					t.Errorf("stats at %s = %v, want inodes", path, got)
				}
			}
			v.ok(v.unpublish)
			_, err := v.usage(t.Context(), v.target)
			wantCode(t, "stats of a target that was unpublished", err, codes.NotFound)
			other := m.newVolume("ext4", 32*mib)
			other.ok(other.stage)
			_, err = v.usage(t.Context(), other.staging)
			wantCode(t, "stats at the path of another volume", err, codes.NotFound)
			_, err = v.usage(t.Context(), m.dir)
			wantCode(t, "stats at a path of the machine itself", err, codes.NotFound)
			other.gone()
			v.gone()
		})
	}
}

// TestReadOnlyModesNeverWrite: a read-only volume is mounted read-only, and a blank one is refused
// instead of being formatted.
func TestReadOnlyModesNeverWrite(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", 32*mib)
	v.capability = mountCapability("ext4", oneNodeRead)
	before := sumOf(t, v.image)
	wantCode(t, "stage of a blank volume read-only", v.stage(t.Context()), codes.FailedPrecondition)
	if got := sumOf(t, v.image); got != before {
		t.Error("the refused stage changed the volume")
	}
	if loops := loopsBelow(m.dir); len(loops) > 0 {
		t.Errorf("the refused stage left %v", loops)
	}
	v.capability = mountCapability("ext4", oneNode)
	v.ok(v.stage, v.publish)
	must(t, os.WriteFile(filepath.Join(v.target, "f"), []byte(writtenBytes), 0o600))
	v.gone()

	v.capability = mountCapability("ext4", oneNodeRead)
	v.ok(v.stage, v.stage)
	if err := os.WriteFile(filepath.Join(v.staging, "g"), nil, 0o600); err == nil {
		t.Error("the read-only staging path took a write")
	}
	writing := v.publishRequest()
	writing.VolumeCapability = mountCapability("ext4", oneNode)
	_, err := v.NodePublishVolume(t.Context(), writing)
	wantCode(t, "publish for writing of a volume staged read-only", err, codes.FailedPrecondition)
	v.ok(v.publish, v.publish)
	if got, err := os.ReadFile(filepath.Join(v.target, "f")); err != nil || string(got) != writtenBytes {
		t.Errorf("the file reads %q, %v, want %q", got, err, writtenBytes)
	}
	v.gone()
}

// TestReadWriteOncePod: SINGLE_NODE_SINGLE_WRITER allows one target, the other modes several.
func TestReadWriteOncePod(t *testing.T) {
	t.Parallel()
	for _, fs := range []string{"ext4", ""} {
		for mode, want := range map[csi.VolumeCapability_AccessMode_Mode]codes.Code{
			oneNodeOne: codes.FailedPrecondition, oneNodeMany: codes.OK, oneNode: codes.OK,
		} {
			t.Run(fmt.Sprintf("%s %s", mode, fs), func(t *testing.T) {
				m := newMachine(t, machineConfig{})
				v := m.newVolume(fs, 32*mib)
				v.capability.AccessMode.Mode = mode
				v.ok(v.stage, v.publish, v.publish)
				second := v.publishRequest()
				second.TargetPath += "-2"
				_, err := v.NodePublishVolume(t.Context(), second)
				wantCode(t, "publish at a second target", err, want)
				if _, err := os.Lstat(second.TargetPath); want != codes.OK && !os.IsNotExist(err) {
					t.Errorf("the refused publish left its target: %v", err)
				}
				v.ok(v.publish, v.unpublish)
				v.ok(func(ctx context.Context) error { _, err := v.NodePublishVolume(ctx, second); return err })
				v.ok(func(ctx context.Context) error { return unpublishCall(v.id, second.TargetPath)(ctx, v) })
				v.gone()
			})
		}
	}
}

// TestManyPublishesAtOnce: targets of one volume do not exclude one another, and of writers that must
// be alone at most one gets in.
func TestManyPublishesAtOnce(t *testing.T) {
	t.Parallel()
	for mode, most := range map[csi.VolumeCapability_AccessMode_Mode]int{oneNodeOne: 1, oneNodeMany: 8} {
		t.Run(mode.String(), func(t *testing.T) {
			m := newMachine(t, machineConfig{})
			v := m.newVolume("ext4", 32*mib)
			v.capability.AccessMode.Mode = mode
			v.ok(v.stage)
			errs := make([]error, 8)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					r := v.publishRequest()
					r.TargetPath = fmt.Sprintf("%s-%d", v.target, i)
					_, errs[i] = v.NodePublishVolume(t.Context(), r)
				})
			}
			wg.Wait()
			published := 0
			for i, err := range errs {
				target := fmt.Sprintf("%s-%d", v.target, i)
				mounted := len(mountsBelow(t, target)) > 0
				if (err == nil) != mounted {
					t.Errorf("publish %d = %v, and its target is mounted: %v", i, err, mounted)
				}
				if mounted {
					published++
				}
				v.ok(func(ctx context.Context) error { return unpublishCall(v.id, target)(ctx, v) })
			}
			if published > most || published == 0 || (most > 1 && published != most) {
				t.Errorf("%d of 8 publishes got in, want %d", published, most)
			}
			v.gone()
		})
	}
}

// countMkfs puts wrappers that count before the mkfs programs on PATH.
func countMkfs(t *testing.T) (calls func() int) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "calls")
	wrap(t, `echo "$0" >> `+log+"\n"+`exec "$real" "$@"`, "mkfs.ext4", "mkfs.xfs", "mke2fs")
	return func() int {
		data, err := os.ReadFile(log)
		if os.IsNotExist(err) {
			return 0
		}
		must(t, err)
		return strings.Count(string(data), "\n")
	}
}

// wrap puts shell scripts before programs on PATH; $real is the program itself.
func wrap(t *testing.T, script string, programs ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, p := range programs {
		body := "#!/bin/sh\nreal=" + strings.TrimSpace(sh(t, "which", p)) + "\n" + script + "\n"
		must(t, os.WriteFile(filepath.Join(dir, p), []byte(body), 0o755))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func randomFile(t *testing.T, path string, size int64) string {
	t.Helper()
	data := make([]byte, size)
	_, err := rand.Read(data)
	must(t, err)
	must(t, os.WriteFile(path, data, 0o600))
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	must(t, err)
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// TestContextIsOptional: a volume written down by hand has no context and is staged all the same.
func TestContextIsOptional(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", 32*mib)
	v.context = nil
	v.ok(v.stage, v.publish)
	v.gone()
	v.context = names.EncodeVolumeContext(driver.VolumeContext{Content: driver.ContentBlank})
	v.context["storage.kubernetes.io/csiProvisionerIdentity"] = "x"
	v.ok(v.stage, v.publish)
	v.gone()
}

// TestARefusedStageLeavesNoDevice: a program that was killed has attached the volume, and the next stage is refused for good. The kubelet then unstages nothing, so
// the stage itself takes the volume off the machine, unless something uses it.
func TestARefusedStageLeavesNoDevice(t *testing.T) {
	t.Parallel()
	m := newMachine(t, machineConfig{})
	v := m.newVolume("ext4", sizeFor("ext4"))
	v.ok(v.stage)
	must(t, unix.Unmount(v.staging, 0))
	loops := loopsBelow(m.dir)
	if len(loops) != 1 {
		t.Fatalf("attached: %v, want one", loops)
	}
	sh(t, "mkswap", "--force", loops[0])
	wantCode(t, "stage of a swap area", v.stage(t.Context()), codes.FailedPrecondition)
	if left := loopsBelow(m.dir); len(left) > 0 {
		t.Errorf("still attached: %v", left)
	}
	must(t, m.pool.Delete(t.Context(), must1(pool.ParseHandle(v.id))(t).ID))

	raw := m.newVolume("", 32*mib)
	raw.ok(raw.stage, raw.publish)
	staged := raw.staging
	raw.staging = filepath.Join(filepath.Dir(staged), "elsewhere")
	must(t, os.MkdirAll(raw.staging, 0o750))
	wantCode(t, "stage at another path", raw.stage(t.Context()), codes.FailedPrecondition)
	if left := loopsBelow(m.dir); len(left) != 1 {
		t.Errorf("attached while a pod has it: %v, want one", left)
	}
	raw.staging = staged
	raw.gone()
}
