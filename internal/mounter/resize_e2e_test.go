//go:build e2e

package mounter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// needsToGrow skips ext4 where the kernel refuses to grow it.
func needsToGrow(t *testing.T, fs Filesystem) {
	t.Helper()
	if fs == Ext4 && !mayGrowExt4() {
		t.Skip("left out: this root lacks CAP_SYS_RESOURCE, without which the kernel grows no mounted ext4; it runs in the virtual machine (make e2e-vm)")
	}
}

// TestExt4WithoutTheCapability: the volume is used with the size that it has, the log says why, and a growth
// is refused with the name of the capability.
func TestExt4WithoutTheCapability(t *testing.T) {
	t.Parallel()
	if mayGrowExt4() {
		t.Skip("this root has CAP_SYS_RESOURCE")
	}
	var logged []string
	m := New(Config{Log: func(msg string, _ ...any) { logged = append(logged, msg) }})
	dev, staging := staged(t, m, Ext4, small)
	takeDown(t, m, dev, staging)
	dev.grow(3 * small)
	for _, what := range []string{"first", "again"} {
		if err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: Ext4}); err != nil {
			t.Errorf("MountDevice %s = %v, want it mounted as it is", what, err)
		}
	}
	if len(logged) != 2 || !strings.Contains(logged[0], "smaller than its device") {
		t.Errorf("logged %q, want why it is smaller, for each call", logged)
	}
	if got, err := m.FilesystemStats(staging); err != nil || got.TotalBytes > small {
		t.Errorf("FilesystemStats = %+v, %v, want no more than %d", got, err, small)
	}
	err := m.GrowFilesystem(t.Context(), dev, staging)
	if !errors.Is(err, fault.GrowCapability) || !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
		t.Errorf("GrowFilesystem = %v, want %v naming the capability", err, fault.GrowCapability)
	}
	takeDown(t, m, dev, staging)
	consistent(t, dev, Ext4)
}

// failing runs real commands, but those that grow a filesystem end with an error.
type failing struct{}

func (failing) Run(ctx context.Context, cmd Command) (Output, error) {
	if cmd.Name == "xfs_growfs" {
		return Output{ExitCode: 1, Stderr: []byte(cmd.Name + ": Input/output error")}, nil
	}
	return commands{}.Run(ctx, cmd)
}

// TestGrow is E3, E5 and C9 at this level: after the device grew the filesystem has its size,
// asking again runs nothing, and it mounts again and is consistent.
func TestGrow(t *testing.T) {
	t.Parallel()
	const larger = 2 * small
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			needsToGrow(t, fs)
			m := New(Config{})
			dev, staging := staged(t, m, fs, small)
			if err := os.WriteFile(filepath.Join(staging, "data"), []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
			before, err := m.FilesystemStats(staging)
			if err != nil {
				t.Fatal(err)
			}
			dev.grow(larger)
			if err := m.GrowFilesystem(t.Context(), dev, staging); err != nil {
				t.Fatal(err)
			}
			after, err := m.FilesystemStats(staging)
			if err != nil || after.TotalBytes < before.TotalBytes+(larger-small)*9/10 {
				t.Errorf("FilesystemStats = %+v, %v; before %+v, want %d more", after, err, before, larger-small)
			}
			none := counted()
			m = New(Config{Runner: none})
			if err := m.GrowFilesystem(t.Context(), dev, staging); err != nil || none.runs("xfs_growfs") > 0 {
				t.Errorf("GrowFilesystem again = %v with %d commands, want none", err, none.runs("xfs_growfs"))
			}
			takeDown(t, m, dev, staging)
			consistent(t, dev, fs)
			if err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs}); err != nil {
				t.Fatal(err)
			}
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

// What a call has mounted is taken down when it does not grow, since its kind of failure means to the kubelet that
// nothing is mounted; what was mounted before stays, and the kind is one that the kubelet repeats.
func TestAGrowthThatFailsAtStage(t *testing.T) {
	t.Parallel()
	for _, fs := range []Filesystem{XFS} { // the kernel alone grows an ext4
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			good, bad := New(Config{}), New(Config{Runner: failing{}})
			dev, staging := staged(t, good, fs, small)
			takeDown(t, good, dev, staging)
			dev.grow(3 * small)
			for _, step := range []struct {
				what    string
				by      *Mounter
				kind    fault.Kind
				mounted bool
			}{
				{"nothing is mounted", bad, fault.Precondition, false},
				{"it grows", good, fault.None, true},
				{"it is mounted already", bad, fault.Unavailable, true},
			} {
				err := step.by.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs})
				_, mounted, lookErr := good.MountAt(staging)
				if fault.Of(err) != step.kind || mounted != step.mounted || lookErr != nil {
					t.Errorf("%s: MountDevice = %v, want the kind %q; it is mounted: %v, %v, want %v", step.what, err, step.kind, mounted, lookErr, step.mounted)
				}
				if step.mounted {
					dev.grow(5 * small)
				}
			}
			takeDown(t, good, dev, staging)
		})
	}
}

// TestGrowAtStage covers a device that grew while nothing was mounted, as after a restore.
func TestGrowAtStage(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			needsToGrow(t, fs)
			m := New(Config{})
			dev, staging := staged(t, m, fs, small)
			takeDown(t, m, dev, staging)
			dev.grow(3 * small)
			if err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs}); err != nil {
				t.Fatal(err)
			}
			if got, err := m.FilesystemStats(staging); err != nil || got.TotalBytes < 2*small {
				t.Errorf("FilesystemStats = %+v, %v, want about %d", got, err, 3*small)
			}
			takeDown(t, m, dev, staging)
			consistent(t, dev, fs)
		})
	}
}

// TestSizesThatLeaveARest: a device that is not a whole number of groups is grown once.
func TestSizesThatLeaveARest(t *testing.T) {
	t.Parallel()
	for _, fs := range allFilesystems {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			needsToGrow(t, fs)
			for _, size := range []int64{small + 512, small + 3*mib, small + 8*mib + 4096, 513 * mib} {
				m := New(Config{})
				dev, staging := staged(t, m, fs, small)
				takeDown(t, m, dev, staging)
				dev.grow(size)
				if err := m.MountDevice(t.Context(), dev, mountRequest{Target: staging, Filesystem: fs}); err != nil {
					t.Fatalf("%d bytes: %v", size, err)
				}
				if f, err := sizeOf(dev, staging, fs); err != nil || size/f.blockSize-f.blocks >= f.rest {
					t.Errorf("grown to %d bytes it has %+v, %v", size, f, err)
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
			m := New(Config{})
			dev, staging := staged(t, m, fs, small)
			before, err := m.FilesystemStats(staging)
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.Create(filepath.Join(staging, "data"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = f.Write(make([]byte, 20*mib)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				t.Fatal(err)
			}
			after, err := m.FilesystemStats(staging)
			if err != nil {
				t.Fatal(err)
			}
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
	if _, err := New(Config{}).FilesystemStats("/does/not/exist"); err == nil {
		t.Error("FilesystemStats of nothing = nil, want an error")
	}
}
