//go:build e2e

package device

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// reservedDisk is a filesystem in a file that is reserved in full, as the quickstart makes it. mount mounts it by a loop
// device that never served, because a used one may refuse discards by itself.
func reservedDisk(t *testing.T, fs string) (image, dir string, mount func()) {
	t.Helper()
	image, dir = filepath.Join(t.TempDir(), "pool.img"), t.TempDir()
	command(t, "fallocate", "-l", "1G", image)
	command(t, mkfs[fs][0], append(mkfs[fs][1:], image)...)
	mount = func() {
		t.Helper()
		for range 20 {
			must(t, loops.Fresh())
			command(t, "fallocate", "-l", "1G", image) // what mkfs or an earlier trim gave away
			command(t, "mount", "-o", "loop", image, dir)
			if takesDiscards(t, dir) {
				return
			}
			// A test of another package has let go of a used device in between.
			must(t, mounts.Unmount(dir))
		}
		t.Fatal("there is no loop device that takes discards")
	}
	mount()
	t.Cleanup(func() { must(t, mounts.Unmount(dir)) })
	return image, dir, mount
}

// takesDiscards reports whether the disk below a mounted filesystem takes discards.
func takesDiscards(t *testing.T, dir string) bool {
	t.Helper()
	source, err := commandOutput("findmnt", "-nro", "SOURCE", dir)
	must(t, err)
	most, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(strings.TrimSpace(source)), "queue/discard_max_bytes"))
	must(t, err)
	return strings.TrimSpace(string(most)) != "0"
}

func allocated(t *testing.T, file string) int64 {
	t.Helper()
	st, err := os.Stat(file)
	must(t, err)
	return st.Sys().(*syscall.Stat_t).Blocks * 512
}

// L6: a trim of the pool's filesystem, as fstrim.timer does it, must not give away the space of the volumes: not after
// the start, not after the pool was mounted again, and not after a stage.
func TestPoolInAFileIsNotTrimmedAway(t *testing.T) {
	for fs := range mkfs {
		t.Run(fs, func(t *testing.T) {
			image, dir, mount := reservedDisk(t, fs)
			set, err := pools.Open(t.Context(), pool.Config{Dir: dir, Node: "n1"})
			must(t, err)
			trimmed := func(when string) {
				t.Helper()
				was := allocated(t, image)
				// It fails where discards are off, which is what this is about.
				out, _ := commandOutput("fstrim", "-v", dir)
				if now := allocated(t, image); now < was {
					t.Errorf("%s: fstrim took the pool's file from %d to %d bytes: %s", when, was, now, out)
				}
			}
			disks := NewPools(set, "n1", LoopConfig{})
			wantKind(t, "Check", disks.Check(t.Context()), fault.None)
			trimmed("after the start")

			must(t, mounts.Unmount(dir))
			mount()
			wantKind(t, "Check after the remount", disks.Check(t.Context()), fault.None)
			trimmed("after it was mounted again")

			must(t, mounts.Unmount(dir))
			mount()
			r := newRig(t, dir)
			c := r.create(t, "a", 16*mib)
			_ = r.open(t, c).Close()
			trimmed("after a stage")
			wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
		})
	}
}

// The same image without this driver: what the test above proves.
func TestPoolInAFileWithoutTheDriverIsTrimmedAway(t *testing.T) {
	image, dir, _ := reservedDisk(t, "xfs")
	if out, err := commandOutput("fstrim", "-v", dir); err != nil || !strings.Contains(out, "trimmed") {
		t.Fatalf("fstrim = %s, %v", out, err)
	}
	if now := allocated(t, image); now > 512*mib {
		t.Errorf("after fstrim %d bytes are allocated: the test of trimmed pools proves nothing on this kernel", now)
	}
}

// F11: a loop device of a copy of a volume's file, which has the same name in another folder, does not stop an unstage.
func TestNumberWhileACopyIsAttached(t *testing.T) {
	dir, backup := t.TempDir(), t.TempDir()
	r := newRig(t, dir)
	c := r.create(t, "a", 16*mib)
	d := r.open(t, c)
	t.Cleanup(func() { detachAll(t, backup) })
	file := filepath.Join(backup, c.Name)
	command(t, "cp", r.pool.ImagePath(idOf(t, c)), file)
	losetup(t, "-f", file)
	number, err := r.Number(t.Context(), c)
	if number != d.Number() || err != nil {
		t.Errorf("Number = %d, %v, want %d", number, err, d.Number())
	}
	_ = d.Close()
	wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
	if left := attached(t, c); len(left) != 1 {
		t.Errorf("attached after Release are %v, want the copy", left)
	}
}

// ownMounts marks the process of a test that has a mount namespace of its own.
const ownMounts = "DEVICE_TEST_OWN_MOUNTS"

// L9: a pool whose disk hangs stops no volume of another pool. A FUSE that nothing serves stands for that disk, in a mount
// namespace where no other program of the machine meets it.
func TestPoolThatHangsStopsNoOtherPool(t *testing.T) {
	if os.Getenv(ownMounts) == "" {
		child := mounts.Separate(t.Context(), "", os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), ownMounts+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	sound, hangs := t.TempDir(), t.TempDir()
	r := newRig(t, sound)
	c := r.create(t, "a", 16*mib)
	d := r.open(t, c)
	defer func() { _ = d.Close() }()
	table := mounts.Table(t, sound, hangs)
	set, err := pools.Open(t.Context(), pool.Config{Dir: sound, Node: "n1", MountTable: table},
		pool.Config{Dir: hangs, Name: "b", Node: "n1", MountTable: table})
	must(t, err)
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	must(t, err)
	must(t, unix.Mount("hangs", hangs, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())))
	thaw := func() { _ = server.Close() } // what waits for it gets an error
	defer func() {
		thaw()
		if err := mounts.Unmount(hangs); err != nil {
			t.Error(err)
		}
	}()
	disks := NewPools(set, "n1", LoopConfig{})
	for range 3 {
		err := within(t, "Number", thaw, func(ctx context.Context) error {
			number, err := disks.Number(ctx, c)
			if number != d.Number() {
				t.Errorf("Number = %d, want %d", number, d.Number())
			}
			return err
		})
		wantKind(t, "Number", err, fault.None)
		// As each probe of /readyz does: none may leave a thread that waits.
		wantKind(t, "Check", within(t, "Check", thaw, disks.Check), fault.Unavailable)
	}
}
