//go:build e2e

package node_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/luks"
)

// TestEncryptedFormatThatOutlivesItsCall: P2. The kubelet gives the first stage up while mkfs runs behind the header. The
// filesystem is completed, and the next stage mounts it.
func TestEncryptedFormatThatOutlivesItsCall(t *testing.T) {
	t.Parallel()
	v := newEncrypted(t, "ext4", 96*mib)
	v.mapper.hold("mkfs.")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- v.stage(ctx) }()
	<-v.mapper.held
	cancel()
	if err := <-ended; err == nil {
		t.Error("stage whose call has ended = nil")
	}
	v.mapper.hold("") // another mkfs would not wait
	close(v.mapper.letGo)
	err := v.stage(t.Context())
	for status.Code(err) == codes.Aborted { // the first one still works
		err = v.stage(t.Context())
	}
	must(t, err)
	if n := v.mapper.count("mkfs."); n != 1 {
		t.Errorf("mkfs ran %d times, want once", n)
	}
	v.gone()
}

// F8, F11: the staging bind of a raw block volume is gone, and its pod has the mapping: it stays open, because its
// number would be the next mapping's.
func TestEncryptedStageWhileAPodHasTheMapping(t *testing.T) {
	t.Parallel()
	v := newEncrypted(t, "", 96*mib)
	v.ok(v.stage, v.publish)
	must(t, unix.Unmount(filepath.Join(v.staging, "device"), 0))
	wantCode(t, "stage", v.stage(t.Context()), codes.FailedPrecondition)
	wantCode(t, "unstage", v.unstage(t.Context()), codes.FailedPrecondition)
	if open := v.mapper.names(); len(open) != 1 {
		t.Errorf("the mappings are %v, want the pod's", open)
	}
	v.ok(v.unpublish, v.stage)
	v.gone()
}

// TestEncryptedUnstageWhileAPodHasTheMapping: the same after its disk has gone, when the mapping stands on nothing.
func TestEncryptedUnstageWhileAPodHasTheMapping(t *testing.T) {
	t.Parallel()
	v := newEncrypted(t, "", 96*mib)
	v.ok(v.stage, v.publish)
	loop := v.mapper.loop(luks.Name(v.id))
	v.mapper.remove(loop)
	v.mapper.add(loop, luks.Name(v.id), "")
	wantCode(t, "unstage", v.unstage(t.Context()), codes.FailedPrecondition)
	if open := v.mapper.names(); len(open) != 1 {
		t.Errorf("the mappings are %v, want the pod's", open)
	}
	v.gone()
}

// TestEncryptedTargetWithTheDisk: a target that has the disk itself, where the pod is to have the mapping, is not kept.
func TestEncryptedTargetWithTheDisk(t *testing.T) {
	t.Parallel()
	v := newEncrypted(t, "", 96*mib)
	v.ok(v.stage)
	must(t, os.WriteFile(v.target, nil, 0o600))
	disk := backingFile("/dev/" + v.mapper.loop(luks.Name(v.id)))
	must(t, unix.Mount(disk, v.target, "", unix.MS_BIND, ""))
	wantCode(t, "publish", v.publish(t.Context()), codes.AlreadyExists)
	v.gone()
}

// F8: a mapping with the name of another driver that cannot be closed at once is found by the next unstage, when nothing
// is mounted any more.
func TestEncryptedUnstageIsRepeated(t *testing.T) {
	t.Parallel()
	for _, fs := range []string{"ext4", ""} {
		t.Run("as "+fs, func(t *testing.T) {
			v := newEncrypted(t, fs, 96*mib)
			v.ok(v.stage)
			v.mapper.rename(luks.Name(v.id), "pvc-of-a-vendor")
			v.mapper.fail("cryptsetup close")
			wantCode(t, "unstage of what is held", v.unstage(t.Context()), codes.Aborted)
			v.gone()
			v.ok(v.stage)
			v.gone()
		})
	}
}

// F8: a cryptsetup that was killed left a mapping without a table, which sysfs does not list, or one whose table is not
// in use. It is removed, and where that fails the volume waits.
func TestEncryptedHalfMadeMapping(t *testing.T) {
	t.Parallel()
	v := newEncrypted(t, "ext4", 96*mib)
	v.mapper.add("loop255", luks.Name(v.id), "")
	v.mapper.fail("dmsetup remove")
	wantCode(t, "stage with a mapping that stays", v.stage(t.Context()), codes.Unavailable)
	v.ok(v.stage)
	v.gone()
	v.mapper.empty = luks.Name(v.id)
	v.ok(v.stage)
	v.gone()
	if v.mapper.empty != "" {
		t.Error("the mapping without a table is still there")
	}
}

// TestEncryptedStageThatFails: what a stage opened is closed. Where that fails the answer is not final for the kubelet,
// which would let the disk be detached below the mapping.
func TestEncryptedStageThatFails(t *testing.T) {
	t.Parallel()
	v := newEncrypted(t, "ext4", ordinary)
	v.ok(v.stage, v.unstage)
	v.capability = mountCapability("xfs", oneNode)
	wantCode(t, "stage as another filesystem", v.stage(t.Context()), codes.FailedPrecondition)
	if open := v.mapper.names(); len(open) != 0 {
		t.Errorf("left open: %v", open)
	}
	v.mapper.fail("cryptsetup close")
	wantCode(t, "stage that cannot close its mapping", v.stage(t.Context()), codes.Unavailable)
	v.gone()
}

// E2: the mapping grows between the disk and the filesystem. The key is needed where it is opened or grows.
func TestEncryptedGrowthNeedsItsKey(t *testing.T) {
	t.Parallel()
	v := newEncrypted(t, "xfs", ordinary)
	v.key = ""
	wantCode(t, "first stage without the key", v.stage(t.Context()), codes.InvalidArgument)
	v.key = luksKey
	v.ok(v.stage, v.publish)
	for i, key := range []string{"", "wrong"} {
		size := ordinary + 32*int64(i+1)*mib
		v.key = key
		v.ok(v.stage) // it is staged
		wantCode(t, "growth with the key "+key, v.grow(t.Context(), size), codes.FailedPrecondition)
		wantCode(t, "stage of what has to grow with the key "+key, v.stage(t.Context()), codes.Unavailable)
		v.key = luksKey
		before := v.total(t)
		must(t, v.grow(t.Context(), size))
		if got := v.total(t); got < before+28*mib {
			t.Errorf("the filesystem has %d bytes after %d, want 32 MiB more", got, before)
		}
	}
	v.gone()
	v.key = "wrong"
	wantCode(t, "stage with the wrong key", v.stage(t.Context()), codes.InvalidArgument)
	v.gone()
}

// TestEncryptedReadOnlyAfterACrash: a filesystem whose machine died is mounted read-only with what was synced: its journal
// is replayed, as on a disk that is not encrypted.
func TestEncryptedReadOnlyAfterACrash(t *testing.T) {
	t.Parallel()
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			v := newEncrypted(t, fs, ordinary)
			v.ok(v.stage)
			data := filepath.Join(v.staging, "data")
			must(t, os.WriteFile(data, []byte("synced"), 0o600))
			sh(t, "sync", data)
			loop := v.mapper.loop(luks.Name(v.id))
			sh(t, "blockdev", "--flushbufs", "/dev/"+loop)
			snapshot := filepath.Join(v.dir, "snapshot")
			sh(t, "cp", "--sparse=always", v.image, snapshot)
			v.ok(v.unstage)
			sh(t, "cp", "--sparse=never", snapshot, v.image)
			v.capability = mountCapability(fs, oneNode, "ro")
			v.ok(v.stage)
			if got, err := os.ReadFile(data); err != nil || string(got) != "synced" {
				t.Errorf("the file says %q, %v", got, err)
			}
			v.gone()
		})
	}
}

// TestEncryptedVolumeAsAPlainDisk: F1. A class that lost its luks does not give a pod the header to write over; a header that
// a pod made on its own raw block volume is its data.
func TestEncryptedVolumeAsAPlainDisk(t *testing.T) {
	t.Parallel()
	v := newEncrypted(t, "", 96*mib)
	v.ok(v.stage, v.unstage)
	delete(v.context, names.Driver+"/luks")
	wantCode(t, "stage as a plain raw block volume", v.volume.stage(t.Context()), codes.FailedPrecondition)
	v.gone()

	plain := v.newVolume("", 96*mib)
	plain.ok(plain.stage, plain.publish)
	key := filepath.Join(v.dir, "key")
	must(t, os.WriteFile(key, []byte("of the pod"), 0o600))
	sh(t, "cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", plain.target, key)
	plain.ok(plain.unpublish, plain.unstage, plain.stage)
	plain.gone()
}

// L10: a copy whose header was made by another program, such as by a pod in a plain raw block volume, is refused before
// its key is tried. A copy of an encrypted volume is staged.
func TestEncryptedCopyOfAHeaderThatIsNotOurs(t *testing.T) {
	t.Parallel()
	v := newEncrypted(t, "ext4", 96*mib)
	v.ok(v.stage, v.unstage)
	v.context[names.Driver+"/content"] = driver.ContentCopy
	v.ok(v.stage, v.unstage)
	sh(t, "cryptsetup", "config", "--subsystem", "a pod", v.image)
	opened := v.mapper.count("cryptsetup open")
	wantCode(t, "stage of a copy of a header that is not ours", v.stage(t.Context()), codes.FailedPrecondition)
	if now := v.mapper.count("cryptsetup open"); now != opened {
		t.Errorf("cryptsetup open ran %d times for it, want never", now-opened)
	}
	v.gone()
}
