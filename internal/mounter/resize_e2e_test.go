//go:build e2e

package mounter_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// sizeOf asks a filesystem's own tool how many bytes it has, and how many of the device may be left over.
func sizeOf(t *testing.T, dev *loopDevice, path string, fs mounter.Filesystem) (size, rest int64) {
	t.Helper()
	tool, patterns := []string{"dumpe2fs", "-h", dev.Path()}, []string{`Block count: +(\d+)`, `Block size: +(\d+)`, `Blocks per group: +(\d+)`}
	if fs == mounter.XFS {
		tool, patterns = []string{"xfs_info", path}, []string{`data +=.* blocks=(\d+)`, `data +=.* bsize=(\d+)`}
	}
	out, err := exec.CommandContext(t.Context(), tool[0], tool[1:]...).Output()
	noError(t, err)
	n := []int64{0, 0, 64} // xfs: XFS_MIN_AG_BLOCKS
	for i, pattern := range patterns {
		found := regexp.MustCompile(pattern).FindSubmatch(out)
		if found == nil {
			t.Fatalf("%s prints no %s:\n%s", tool, pattern, out)
		}
		if n[i], err = strconv.ParseInt(string(found[1]), 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return n[0] * n[1], n[2] * n[1]
}

// TestExt4WithoutTheCapability: the volume is used with the size that it has, the log says why, and a growth
// is refused with the name of the capability.
func TestExt4WithoutTheCapability(t *testing.T) {
	t.Parallel()
	if mounts.GrowsExt4(t) {
		t.Skip("this root has CAP_SYS_RESOURCE")
	}
	var logged []string
	m := machineWith(mount.Config{Log: func(msg string, _ ...any) { logged = append(logged, msg) }})
	dev, staging := staged(t, m, mounter.Ext4, small)
	takeDown(t, m, dev, staging)
	dev.grow(3 * small)
	for _, what := range []string{"first", "again"} {
		if err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: mounter.Ext4}); err != nil {
			t.Errorf("MountDevice %s = %v, want it mounted as it is", what, err)
		}
	}
	if len(logged) != 2 || !strings.Contains(logged[0], "smaller than its device") {
		t.Errorf("logged %q, want why it is smaller, for each call", logged)
	}
	if got, err := mount.FilesystemStats(staging); err != nil || got.TotalBytes > small {
		t.Errorf("FilesystemStats = %+v, %v, want no more than %d", got, err, small)
	}
	err := m.GrowFilesystem(t.Context(), dev, staging)
	if !errors.Is(err, fault.GrowCapability) || !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
		t.Errorf("GrowFilesystem = %v, want %v naming the capability", err, fault.GrowCapability)
	}
	takeDown(t, m, dev, staging)
	consistent(t, dev, mounter.Ext4)
}

// failing runs real commands, but those that grow a filesystem end with an error.
type failing struct{}

func (failing) Run(ctx context.Context, cmd host.Command) (host.Output, error) {
	if cmd.Name == "xfs_growfs" {
		return host.Output{ExitCode: 1, Stderr: []byte(cmd.Name + ": Input/output error")}, nil
	}
	return host.Programs{}.Run(ctx, cmd)
}

// E3: after the device grew the filesystem has its size, asking again runs nothing, and it mounts again and is
// consistent.
func TestGrow(t *testing.T) {
	t.Parallel()
	const larger = 2 * small
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			mounts.NeedsToGrow(t, string(fs))
			m := newMachine()
			dev, staging := staged(t, m, fs, small)
			noError(t, os.WriteFile(filepath.Join(staging, "data"), []byte("kept"), 0o600))
			before, err := mount.FilesystemStats(staging)
			noError(t, err)
			dev.grow(larger)
			noError(t, m.GrowFilesystem(t.Context(), dev, staging))
			after, err := mount.FilesystemStats(staging)
			if err != nil || after.TotalBytes < before.TotalBytes+(larger-small)*9/10 {
				t.Errorf("FilesystemStats = %+v, %v; before %+v, want %d more", after, err, before, larger-small)
			}
			none := counted()
			m = newMachine(none)
			if err := m.GrowFilesystem(t.Context(), dev, staging); err != nil || none.runs("xfs_growfs") > 0 {
				t.Errorf("GrowFilesystem again = %v with %d commands, want none", err, none.runs("xfs_growfs"))
			}
			takeDown(t, m, dev, staging)
			consistent(t, dev, fs)
			noError(t, m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs}))
			if n := none.runs("xfs_growfs"); n > 0 {
				t.Errorf("mounting a filesystem of full size ran %d commands to grow it", n)
			}
			if data, err := os.ReadFile(filepath.Join(staging, "data")); err != nil || string(data) != "kept" {
				t.Errorf("the file says %q, %v", data, err)
			}
			takeDown(t, m, dev, staging)
		})
	}
}

// failingInUse is failing, and from then on another program uses the filesystem.
type failingInUse struct{ user *os.File }

func (f *failingInUse) Run(ctx context.Context, cmd host.Command) (out host.Output, err error) {
	if cmd.Name == "xfs_growfs" {
		if f.user, err = os.Open(cmd.Args[len(cmd.Args)-1]); err != nil {
			return out, err
		}
	}
	return failing{}.Run(ctx, cmd)
}

// E5: what a call has mounted is taken down when it does not grow, since its kind of failure means to the kubelet that
// nothing is mounted; what was mounted before, or is in use by now, stays, and the kind is one that the kubelet repeats.
func TestAGrowthThatFailsAtStage(t *testing.T) {
	t.Parallel()
	for _, fs := range []mounter.Filesystem{mounter.XFS} { // the kernel alone grows an ext4
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			user := &failingInUse{}
			good, bad, busy := newMachine(), newMachine(failing{}), newMachine(user)
			dev, staging := staged(t, good, fs, small)
			takeDown(t, good, dev, staging)
			dev.grow(3 * small)
			for _, step := range []struct {
				what    string
				by      *machine
				kind    fault.Kind
				mounted bool
			}{
				{"nothing is mounted", bad, fault.Precondition, false},
				{"it cannot be taken down", busy, fault.Unavailable, true},
				{"it grows", good, fault.None, true},
				{"it is mounted already", bad, fault.Unavailable, true},
			} {
				err := step.by.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs})
				_, mounted, lookErr := good.MountAt(staging)
				if fault.Of(err) != step.kind || mounted != step.mounted || lookErr != nil {
					t.Errorf("%s: MountDevice = %v, want the kind %q; it is mounted: %v, %v, want %v", step.what, err, step.kind, mounted, lookErr, step.mounted)
				}
				if step.kind == fault.None {
					dev.grow(5 * small)
				}
			}
			noError(t, user.user.Close())
			takeDown(t, good, dev, staging)
		})
	}
}

// TestSizesThatLeaveARest: a device that is not a whole number of groups is grown once.
func TestSizesThatLeaveARest(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			mounts.NeedsToGrow(t, string(fs))
			for _, size := range []int64{small + 512, small + 3*mib, small + 8*mib + 4096, 513 * mib} {
				m := newMachine()
				dev, staging := staged(t, m, fs, small)
				takeDown(t, m, dev, staging)
				dev.grow(size)
				if err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs}); err != nil {
					t.Fatalf("%d bytes: %v", size, err)
				}
				if has, rest := sizeOf(t, dev, staging, fs); size-has >= rest {
					t.Errorf("grown to %d bytes it has %d", size, has)
				}
				if err := m.GrowFilesystem(t.Context(), dev, staging); err != nil {
					t.Errorf("grown to %d bytes, it grows once more with %v", size, err)
				}
				takeDown(t, m, dev, staging)
			}
		})
	}
}

// TestStats is P6 for filesystems and devices.
func TestStats(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			dev, staging := staged(t, m, fs, small)
			before, err := mount.FilesystemStats(staging)
			noError(t, err)
			f, err := os.Create(filepath.Join(staging, "data"))
			noError(t, err)
			// Allocated first, because xfs may keep room for more behind the end of a file that grows.
			if err = unix.Fallocate(int(f.Fd()), 0, 0, 20*mib); err != nil {
				t.Fatal(err)
			}
			if _, err = f.Write(make([]byte, 20*mib)); err != nil {
				t.Fatal(err)
			}
			noError(t, errors.Join(f.Sync(), f.Close()))
			after, err := mount.FilesystemStats(staging)
			noError(t, err)
			if used := after.UsedBytes - before.UsedBytes; used < 19*mib || used > 25*mib {
				t.Errorf("20 MiB written, %d used", used)
			}
			if after.UsedInodes != before.UsedInodes+1 {
				t.Errorf("inodes used = %d, want %d", after.UsedInodes, before.UsedInodes+1)
			}
			if after.TotalBytes > small || after.TotalBytes < small/2 || after.AvailableBytes > after.TotalBytes-after.UsedBytes {
				t.Errorf("FilesystemStats = %+v of a device of %d", after, small)
			}
			if size, err := dev.Size(); size != small || err != nil {
				t.Errorf("Size = %d, %v, want %d", size, err, small)
			}
			takeDown(t, m, dev, staging)
		})
	}
	if _, err := mount.FilesystemStats("/does/not/exist"); err == nil {
		t.Error("FilesystemStats of nothing = nil, want an error")
	}
}
