//go:build e2e

package device

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/pools"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

func TestMain(m *testing.M) { loops.Main(m) }

var wantKind = expect.Kind

const mib = 1 << 20

// rig is a pool with its resolver; whatever a test leaves attached is detached at its end.
type rig struct {
	*Pools
	pool *files.Pool
	dir  string
}

func newRig(t *testing.T, dir string) rig {
	t.Helper()
	t.Cleanup(func() { detachAll(t, dir) })
	return rigWith(t, dir, LoopConfig{})
}

func rigWith(t *testing.T, dir string, cfg LoopConfig) rig {
	t.Helper()
	set, err := pools.Open(t.Context(), pool.Config{Dir: dir, Node: "n1", MountTable: mounts.Table(t, dir)})
	must(t, err)
	return rig{NewPools(set, "n1", cfg), set.Opened()[0].(*files.Pool), dir}
}

// detachAll detaches by hand, so that a broken Release leaves nothing on the machine either.
func detachAll(t *testing.T, dir string) {
	for _, loop := range loops.Below(dir) {
		if err := loops.Detach(loop); err != nil {
			t.Error(err)
		}
	}
}

func (r rig) create(t *testing.T, name string, size int64) Spec {
	t.Helper()
	rec, err := r.pool.Create(t.Context(), pool.NewVolume{Name: name, Size: size})
	must(t, err)
	return Spec{Volume: r.pool.Handle(rec.ID).String(), Name: rec.ID.ImageName(), Size: size}
}

func (r rig) open(t *testing.T, c Spec) *Device {
	t.Helper()
	d, err := r.Open(t.Context(), c)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func idOf(t *testing.T, c Spec) pool.ID {
	t.Helper()
	h, err := pool.ParseHandle(c.Volume)
	must(t, err)
	return h.ID
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	return strings.TrimSpace(string(data))
}

// attached returns the loop devices of a volume, found by the backing file's name.
func attached(t *testing.T, c Spec) []string {
	t.Helper()
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var names []string
	for _, file := range files {
		data, _ := os.ReadFile(file)
		if strings.Contains(string(data), string(idOf(t, c))) {
			names = append(names, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return names
}

// freshLoop adds a loop device that nobody ever used, under a number that nobody is given by chance.
func freshLoop(t *testing.T) string {
	t.Helper()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	must(t, err)
	n := 10_000 + os.Getpid()
	must(t, unix.IoctlSetInt(int(ctl.Fd()), unix.LOOP_CTL_ADD, n))
	t.Cleanup(func() {
		// The kernel refuses it while anybody uses the device.
		if err := unix.IoctlSetInt(int(ctl.Fd()), unix.LOOP_CTL_REMOVE, n); err != nil {
			t.Errorf("remove loop%d: %v", n, err)
		}
		_ = ctl.Close()
	})
	return "loop" + strconv.Itoa(n)
}

// L7: a loop device that was just made passes no discard on to the pool.
func TestFreshLoopDeviceRefusesDiscards(t *testing.T) {
	loop := freshLoop(t)
	r := newRig(t, t.TempDir())
	c := r.create(t, "pvc-1", 16*mib)
	limit := "/sys/block/" + loop + "/queue/discard_max_bytes"
	losetup(t, "/dev/"+loop, r.pool.ImagePath(idOf(t, c)))
	if read(t, limit) == "0" {
		t.Fatal("a fresh loop device refuses discards by itself; this test proves nothing")
	}
	wantKind(t, "Release", r.Release(t.Context(), c), fault.None)

	err := r.pool.Use(t.Context(), idOf(t, c), func(image *os.File, _ pool.Record) error {
		f, err := r.blank.attachTo(t.Context(), loop, image, 0)
		return errors.Join(err, f.Close())
	})
	if got := read(t, limit); err != nil || got != "0" {
		t.Errorf("discard_max_bytes = %s, %v, want 0", got, err)
	}
	wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
}

// Whatever program had a loop device before, its settings do not pass to the next file.
func TestAttachResetsWhatALoopDeviceKeeps(t *testing.T) {
	loop := freshLoop(t)
	r := newRig(t, t.TempDir())
	c := r.create(t, "pvc-1", 16*mib)
	command(t, "blockdev", "--setro", "/dev/"+loop)
	err := r.pool.Use(t.Context(), idOf(t, c), func(image *os.File, rec pool.Record) error {
		f, err := r.blank.attachTo(t.Context(), loop, image, 0)
		if err != nil {
			return err
		}
		return errors.Join(r.blank.setUp(f, rec.Size), f.Close())
	})
	wantKind(t, "attach", err, fault.None)
	if got := read(t, "/sys/block/"+loop+"/ro"); got != "0" {
		t.Errorf("ro = %s after attach, want 0", got)
	}
	wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
}

func TestLoopLifecycle(t *testing.T) {
	r := newRig(t, t.TempDir())
	c := r.create(t, "pvc-1", 32*mib)

	_, err := r.Lookup(t.Context(), c)
	wantKind(t, "Lookup before Open", err, fault.NotFound)

	d := r.open(t, c)
	if size, err := d.Size(); err != nil || size != 32*mib {
		t.Errorf("Size = %d, %v, want 32 MiB", size, err)
	}
	queue := "/sys/block/" + filepath.Base(d.Path())
	if got := read(t, queue+"/queue/discard_max_bytes"); got != "0" {
		t.Errorf("discard_max_bytes = %s, want 0", got)
	}
	if got := read(t, queue+"/loop/dio"); got != "1" {
		t.Errorf("direct I/O = %s, want 1", got)
	}
	if got := read(t, queue+"/queue/logical_block_size"); got != "4096" {
		t.Errorf("logical block size = %s, want 4096", got)
	}

	again := r.open(t, c)
	if again.Path() != d.Path() || again.Number() != d.Number() {
		t.Errorf("a second Open gave %s, want %s", again.Path(), d.Path())
	}
	found, err := r.Lookup(t.Context(), c)
	if err != nil || found.Path() != d.Path() {
		t.Fatalf("Lookup = %v, %v, want %s", found, err, d.Path())
	}
	for _, dev := range []*Device{again, found} {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
	write(t, d, []byte("precious"), 5*mib)
	must(t, d.Close())
	for range 2 {
		must(t, r.Release(t.Context(), c))
		if left := attached(t, c); len(left) > 0 {
			t.Fatalf("after Release %v is still attached", left)
		}
	}
	image, err := os.ReadFile(r.pool.ImagePath(idOf(t, c)))
	if err != nil || !bytes.Equal(image[5*mib:5*mib+8], []byte("precious")) {
		t.Errorf("the image does not hold what was written: %v", err)
	}
}

func TestLoopIsRefusedWhereItIsNotTheVolume(t *testing.T) {
	r := newRig(t, t.TempDir())
	c := r.create(t, "pvc-1", 16*mib)
	image := r.pool.ImagePath(idOf(t, c))

	t.Run("a volume of another node is not found", func(t *testing.T) {
		_, err := r.Open(t.Context(), Spec{Volume: "n2/" + string(idOf(t, c))})
		wantKind(t, "Open", err, fault.NotFound)
	})
	t.Run("a hostile id is not found", func(t *testing.T) {
		_, err := r.Open(t.Context(), Spec{Volume: "n1/../volumes/" + string(idOf(t, c))})
		wantKind(t, "Open", err, fault.NotFound)
	})
	t.Run("a device name that is not the image's is refused", func(t *testing.T) {
		_, err := r.Open(t.Context(), Spec{Volume: c.Volume, Name: string(pool.NewID()) + ".img"})
		wantKind(t, "Open", err, fault.Precondition)
	})
	t.Run("a volume smaller than promised is refused", func(t *testing.T) {
		_, err := r.Open(t.Context(), Spec{Volume: c.Volume, Size: 17 * mib})
		wantKind(t, "Open", err, fault.Precondition)
		wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
	})
	t.Run("a device that is attached read-only is refused", func(t *testing.T) {
		losetup(t, "-r", "-f", image)
		_, err := r.Open(t.Context(), c)
		wantKind(t, "Open", err, fault.Precondition)
		wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
	})
	t.Run("two devices of one image are refused", func(t *testing.T) {
		losetup(t, "-f", image)
		losetup(t, "-f", image)
		_, err := r.Open(t.Context(), c)
		wantKind(t, "Open", err, fault.Precondition)
		wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
	})
	t.Run("a device of an image that was replaced proves nothing", func(t *testing.T) {
		d := r.open(t, c)
		moved := image + ".moved"
		must(t, os.Rename(image, moved))
		must(t, os.WriteFile(image, make([]byte, 16*mib), 0o600))
		wantKind(t, "Verify", d.Verify(t.Context()), fault.Precondition)
		_, err := r.Lookup(t.Context(), c)
		wantKind(t, "Lookup", err, fault.NotFound)
		must(t, os.Rename(moved, image))
		wantKind(t, "Verify of the right image", d.Verify(t.Context()), fault.None)
	})
	t.Run("a device of a deleted image is refused and can be released", func(t *testing.T) {
		d := r.open(t, c)
		must(t, os.Remove(image))
		wantKind(t, "Verify", d.Verify(t.Context()), fault.Precondition)
		_, err := r.Open(t.Context(), c)
		wantKind(t, "Open", err, fault.Precondition)
		must(t, d.Close())
		wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
		if left := attached(t, c); len(left) > 0 {
			t.Errorf("after Release %v is still attached", left)
		}
	})
}

func losetup(t *testing.T, args ...string) string {
	t.Helper()
	return strings.TrimSpace(command(t, "losetup", append([]string{"--show"}, args...)...))
}

func TestReleaseSucceedsOnlyWhenTheDeviceIsGone(t *testing.T) {
	r := newRig(t, t.TempDir())
	c := r.create(t, "pvc-1", 32*mib)
	d := r.open(t, c)

	excl, err := os.OpenFile(d.Path(), os.O_RDONLY|unix.O_EXCL, 0)
	must(t, err)
	err = r.Release(t.Context(), c)
	wantKind(t, "Release while in exclusive use", err, fault.Busy)
	number := strings.TrimSpace(read(t, "/sys/block/"+filepath.Base(d.Path())+"/dev"))
	if want := "`grep -l ' " + number + " ' /proc/[0-9]*/mountinfo`"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Release while in exclusive use = %v, want the command that finds the holder: %s", err, want)
	}
	must(t, excl.Close())
	if err := d.Verify(t.Context()); err != nil {
		t.Errorf("a refused Release touched the device: %v", err)
	}
	if got := read(t, "/sys/block/"+filepath.Base(d.Path())+"/loop/autoclear"); got != "0" {
		t.Errorf("autoclear = %s: the mounted device would vanish later", got)
	}

	wantKind(t, "Release while open", r.Release(t.Context(), c), fault.Busy)
	// The kernel would now detach at the last close. Open takes it back.
	back := r.open(t, c)
	_ = d.Close()
	_ = back.Close()
	if got := attached(t, c); len(got) != 1 {
		t.Fatalf("attached after the last close = %v, want one device", got)
	}
	wantKind(t, "Release", r.Release(t.Context(), c), fault.None)
}

func TestLockLivesWithTheLoopDevice(t *testing.T) {
	r := newRig(t, t.TempDir())
	c := r.create(t, "pvc-1", 16*mib)
	d := r.open(t, c)
	must(t, d.Close())
	// A folder without loop devices shows that the lock alone is enough.
	blind, err := files.Open(t.Context(), pool.Config{Dir: r.dir, Node: "n1", SysDir: t.TempDir(), MountTable: mounts.Table(t, r.dir)})
	must(t, err)
	wantKind(t, "Delete with nothing but the lock", blind.Delete(t.Context(), idOf(t, c)), fault.Precondition)
	wantKind(t, "Delete", r.pool.Delete(t.Context(), idOf(t, c)), fault.Precondition)
	wantKind(t, "Remove", r.pool.Remove(t.Context(), idOf(t, c)), fault.Precondition)
	wantKind(t, "Release", r.Release(t.Context(), c), fault.None)

	losetup(t, "-f", r.pool.ImagePath(idOf(t, c)))
	wantKind(t, "Delete of a volume attached by hand", r.pool.Delete(t.Context(), idOf(t, c)), fault.Precondition)
	wantKind(t, "Release", r.Release(t.Context(), c), fault.None)

	wantKind(t, "Delete after Release", r.pool.Delete(t.Context(), idOf(t, c)), fault.None)
	if _, err := os.Stat(r.pool.ImagePath(idOf(t, c))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the image is still there: %v", err)
	}
}
