//go:build e2e

package mounter_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

var allFilesystems = []mounter.Filesystem{mounter.Ext4, mounter.XFS}

// someFilesystems are those that long loops run on: all, with -short one.
func someFilesystems() []mounter.Filesystem {
	if testing.Short() {
		return allFilesystems[:1]
	}
	return allFilesystems
}

// staged is a formatted volume mounted at a staging path.
func staged(t *testing.T, m *machine, fs mounter.Filesystem, size int64) (*loopDevice, string) {
	t.Helper()
	dev, staging := newLoop(t, size), filepath.Join(t.TempDir(), "staging")
	m.formatted(t, dev, format.Request{Volume: "v1", Filesystem: fs})
	noError(t, m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs}))
	return dev, staging
}

// F6: a hundred stages keep every byte, whatever caches of the machine know, and mkfs runs once.
func TestOneFormatForManyStages(t *testing.T) {
	t.Parallel()
	for _, fs := range someFilesystems() {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			programs, dev := counted(), newLoop(t, small)
			m := newMachine(programs)
			staging := filepath.Join(t.TempDir(), "staging")
			req := format.Request{Volume: "v1", Filesystem: fs, Size: small, BlankCreated: true, FormatNonZero: true}
			sums := make(map[string][32]byte)
			for cycle := range 100 {
				forget(t, dev)
				if _, err := m.EnsureFormatted(t.Context(), dev, req); err != nil {
					t.Fatalf("cycle %d: %v", cycle, err)
				}
				if err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs}); err != nil {
					t.Fatalf("cycle %d: %v", cycle, err)
				}
				for name, want := range sums {
					data, err := os.ReadFile(filepath.Join(staging, name))
					if err != nil || sha256.Sum256(data) != want {
						t.Fatalf("cycle %d: file %s changed, %v", cycle, name, err)
					}
				}
				name, data := fmt.Sprint("file-", cycle), []byte(strings.Repeat(fmt.Sprint(cycle, " "), 5000))
				sums[name] = sha256.Sum256(data)
				noError(t, os.WriteFile(filepath.Join(staging, name), data, 0o600))
				takeDown(t, m, dev, staging)
			}
			if n := programs.runs(); n != 1 {
				t.Errorf("mkfs ran %d times in 100 stages, want once", n)
			}
			consistent(t, dev, fs)
		})
	}
}

// forget removes what udev and blkid remember about a device.
func forget(t *testing.T, dev *loopDevice) {
	t.Helper()
	for _, path := range []string{fmt.Sprintf("/run/udev/data/b%d:%d", unix.Major(dev.number), unix.Minor(dev.number)), "/run/blkid/blkid.tab"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// F9: if anything else is mounted at the staging path, mounting there is an error, never success.
func TestOccupiedStagingPath(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			dev, staging := staged(t, m, fs, small)
			other, otherStaging := staged(t, m, fs, small)
			tests := map[string]struct {
				dev  *loopDevice
				req  mountRequest
				want fault.Kind
			}{
				"the same again":                 {dev, mountRequest{Target: staging, Filesystem: fs}, fault.None},
				"another device":                 {other, mountRequest{Target: staging, Filesystem: fs}, fault.Conflict},
				"the other way round":            {dev, mountRequest{Target: otherStaging, Filesystem: fs}, fault.Conflict},
				"read-only where it is writable": {dev, mountRequest{Target: staging, Filesystem: fs, ReadOnly: true}, fault.Conflict},
				"other options":                  {dev, mountRequest{Target: staging, Filesystem: fs, Options: []string{"noexec"}}, fault.Conflict},
				"a refused option":               {dev, mountRequest{Target: staging, Filesystem: fs, Options: []string{"bind"}}, fault.InvalidArgument},
				"a relative path":                {dev, mountRequest{Target: "staging", Filesystem: fs}, fault.InvalidArgument},
			}
			for name, tc := range tests {
				t.Run(name, func(t *testing.T) {
					if err := m.MountDevice(t.Context(), tc.dev, tc.req); fault.Of(err) != tc.want {
						t.Errorf("MountDevice = %v, want kind %q", err, tc.want)
					}
				})
			}
			if ok, err := m.IsMountOf(staging, other.number); ok || err != nil {
				t.Errorf("IsMountOf(staging, the other device) = %v, %v, want false", ok, err)
			}
			full := t.TempDir()
			noError(t, os.WriteFile(filepath.Join(full, "precious"), nil, 0o600))
			if err := m.MountDevice(t.Context(), dev, mountRequest{Target: full, Filesystem: fs}); fault.Of(err) != fault.Conflict {
				t.Errorf("MountDevice on a directory with files = %v, want %v", err, fault.Conflict)
			}
			takeDown(t, m, dev, staging)
			takeDown(t, m, other, otherStaging)
		})
	}
}

// A4: a mount that outlived its disk is in the way, whichever device is to be mounted there.
func TestMountOfADiskThatHasGone(t *testing.T) {
	t.Parallel()
	m, sys := machineWith(mount.Config{Sysfs: host.Sysfs(t.TempDir())}), newMachine() // no disk is listed there
	dev, staging := staged(t, sys, mounter.Ext4, small)
	other := newLoop(t, small)
	for _, d := range []*loopDevice{dev, other} {
		err := m.MountDevice(t.Context(), d, mountRequest{Target: staging, Filesystem: mounter.Ext4})
		if !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "gone from this machine") {
			t.Errorf("MountDevice = %v, want %v with advice", err, fault.Conflict)
		}
	}
	takeDown(t, sys, dev, staging)
}

// TestWhatGotMountedIsProven: a name that leads to another device, and a device that the kernel mounts read-only, are
// found after the mount, which is undone.
func TestWhatGotMountedIsProven(t *testing.T) {
	t.Parallel()
	m := newMachine()
	for _, fs := range []mounter.Filesystem{mounter.XFS} {
		dev, staging := staged(t, m, fs, small)
		takeDown(t, m, dev, staging)
		other, theirs := staged(t, m, fs, small)
		takeDown(t, m, other, theirs)
		refused := func(what string, d mounter.BlockDevice) {
			t.Helper()
			if err := m.MountDevice(t.Context(), d, mountRequest{Target: staging, Filesystem: fs}); !errors.Is(err, fault.MountFailed) {
				t.Errorf("mount of %s = %v, want %v", what, err, fault.MountFailed)
			}
			if _, mounted, err := m.MountAt(staging); mounted || err != nil {
				t.Errorf("after the mount of %s: mounted %v, %v", what, mounted, err)
			}
			if _, err := os.Lstat(staging); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("after the mount of %s the directory is there: %v", what, err)
			}
		}
		refused("another device", renamed{dev, other.Path()})
		must(t, "blockdev", "--setro", dev.Path())
		refused("a write-protected device", dev)
		must(t, "blockdev", "--setrw", dev.Path())
	}
}

// renamed is a device whose name has passed to another one.
type renamed struct {
	*loopDevice
	path string
}

func (r renamed) Path() string { return r.path }

// F12: between the look at the staging path and the bind another device may come there.
func TestBindOfWhatWasMountedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		m := newMachine()
		dev, staging := staged(t, m, fs, small)
		before, err := m.lookAt(staging, dev.number)
		if err != nil || before.Use != mount.Ours {
			t.Fatalf("at the staging path is %+v, %v", before, err)
		}
		other, theirs := staged(t, m, fs, small)
		takeDown(t, m, other, theirs)
		noError(t, m.UnmountAll(t.Context(), staging))
		target := filepath.Join(filepath.Dir(staging), "target")
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) }) // a bind of the machine's folder is no device's
		at, err := m.lookAt(target, dev.number)
		noError(t, err)
		refused := func(what string) {
			t.Helper()
			if err := m.Bind(t.Context(), before, at, mount.BindOptions{}); !errors.Is(err, fault.Precondition) {
				t.Errorf("Bind of %s = %v, want %v", what, err, fault.Precondition)
			}
			if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("after the bind of %s the target is there: %v", what, err)
			}
		}
		refused("the machine's own folder")
		must(t, "mount", "-t", string(fs), other.Path(), staging)
		refused("another device")
		takeDown(t, m, other, staging)
	}
}

// F12: without a mount at the staging path the directory there is the node's own disk.
func TestPublishNeedsAStagedVolume(t *testing.T) {
	t.Parallel()
	m, dir := newMachine(), t.TempDir()
	dev, staging := staged(t, m, mounter.Ext4, small)
	if err := mounts.Unmount(staging); err != nil { // behind the driver's back
		t.Fatal(err)
	}
	target := filepath.Join(dir, "target")
	wantKind(t, "BindDir without staging", m.BindDir(t.Context(), staging, target, mount.BindOptions{}), fault.Precondition)
	if _, ok, err := m.MountAt(target); ok || err != nil {
		t.Errorf("MountAt(target) = %v, %v, want nothing", ok, err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target was made: %v", err)
	}
	if ok, err := m.IsMountOf(staging, dev.number); ok || err != nil {
		t.Errorf("IsMountOf(unmounted staging) = %v, %v, want false", ok, err)
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			m, dir := newMachine(), t.TempDir()
			dev, staging := staged(t, m, fs, small)
			bound, writable := filepath.Join(dir, "ro"), filepath.Join(dir, "rw")
			for range 2 {
				noError(t, m.BindDir(t.Context(), staging, bound, mount.BindOptions{ReadOnly: true, Options: []string{"noexec,discard"}}))
				noError(t, m.BindDir(t.Context(), staging, writable, mount.BindOptions{}))
			}
			if err := os.WriteFile(filepath.Join(bound, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("write through a read-only bind = %v, want %v", err, unix.EROFS)
			}
			if err := os.WriteFile(filepath.Join(writable, "x"), nil, 0o600); err != nil {
				t.Errorf("write through a writable bind beside it = %v", err)
			}
			if at, _, err := m.MountAt(bound); err != nil || !at.ReadOnly() || !slices.Contains(at.AllOptions(), "noexec") || slices.Contains(at.AllOptions(), "nosuid") {
				t.Errorf("MountAt = %+v, %v, want read-only and noexec", at, err)
			}
			wantKind(t, "writable bind on a read-only one", m.BindDir(t.Context(), staging, bound, mount.BindOptions{}), fault.Conflict)
			takeDown(t, m, dev, bound, writable, staging)

			noError(t, m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs, Options: []string{"ro"}}))
			if err := os.WriteFile(filepath.Join(staging, "y"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("write on a read-only mount = %v, want %v", err, unix.EROFS)
			}
			wantKind(t, "bind of a read-only mount", m.BindDir(t.Context(), staging, bound, mount.BindOptions{}), fault.None)
			takeDown(t, m, dev, bound, staging)
		})
	}
}

// P7: an unmount that fails leaves the target, its content and the mount table as they were.
func TestFailingUnmountLosesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine()
	dev, staging := staged(t, m, mounter.Ext4, small)
	target := filepath.Join(t.TempDir(), "target")
	noError(t, m.BindDir(t.Context(), staging, target, mount.BindOptions{}))
	busy, err := os.Create(filepath.Join(target, "open"))
	noError(t, err)
	wantKind(t, "Unmount in use", m.UnmountAll(t.Context(), target), fault.Busy)
	wantReason(t, "RemoveTarget of a mount", m.RemoveTarget(target), fault.TargetInUse)
	wantKind(t, "idle of a mounted device", idle(dev), fault.Busy)
	if _, err := os.Stat(filepath.Join(staging, "open")); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
	if holders, err := m.Holders(dev.number); err != nil || len(holders) != 2 {
		t.Errorf("Holders = %v, %v, want both mounts as before", holders, err)
	}
	noError(t, busy.Close())
	takeDown(t, m, dev, target, staging)
	wantKind(t, "Unmount again", m.UnmountAll(t.Context(), target), fault.None)
}

// TestRawBlock takes a device through publish and unpublish without a filesystem.
func TestRawBlock(t *testing.T) {
	t.Parallel()
	m, dev, other, dir := newMachine(), newLoop(t, small), newLoop(t, small), t.TempDir()
	target, readOnly := filepath.Join(dir, "pod", "disk"), filepath.Join(dir, "ro")
	for range 2 {
		noError(t, m.BindDevice(t.Context(), dev, target, false))
		noError(t, m.BindDevice(t.Context(), dev, readOnly, true))
	}
	wantKind(t, "BindDevice of another device", m.BindDevice(t.Context(), other, target, false), fault.Conflict)
	if ok, err := m.IsBindOf(target, dev.number); !ok || err != nil {
		t.Errorf("IsBindOf = %v, %v, want true", ok, err)
	}
	if ok, err := m.IsBindOf(target, other.number); ok || err != nil {
		t.Errorf("IsBindOf(another) = %v, %v, want false", ok, err)
	}
	f, err := os.OpenFile(target, os.O_RDWR, 0)
	noError(t, err)
	if _, err := f.WriteAt([]byte("raw"), small-3); err != nil {
		t.Error(err)
	}
	if _, err := f.WriteAt([]byte("raw"), small); err == nil {
		t.Error("a write past the size succeeded")
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Error(err)
	}
	if holders, err := m.Holders(dev.number); err != nil || len(holders) != 2 {
		t.Errorf("Holders = %v, %v, want the two binds", holders, err)
	}
	takeDown(t, m, dev, target, readOnly)
}
