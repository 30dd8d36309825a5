//go:build e2e

package mounter_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

// small is a size that every mkfs accepts.
const small = 320 * mib

func TestLifeOfAVolume(t *testing.T) {
	t.Parallel()
	for _, fs := range []mounter.Filesystem{mounter.Ext4, mounter.XFS} {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			m, dev, dir := newMachine(), newLoop(t, small), t.TempDir()
			req := format.Request{Volume: "v1", Filesystem: fs, Size: small}
			got, err := m.EnsureFormatted(t.Context(), dev, req)
			if err != nil || got != fs {
				t.Fatalf("EnsureFormatted(blank) = %q, %v, want %q", got, err, fs)
			}
			staging, target := filepath.Join(dir, "staging"), filepath.Join(dir, "pod", "mount")
			request := mountRequest{Target: staging, Filesystem: fs, Options: []string{"noatime"}}
			for range 2 { // a repeat changes nothing
				noError(t, m.MountDevice(t.Context(), dev, request))
				noError(t, m.BindDir(t.Context(), staging, target, mount.BindOptions{}))
			}
			for _, path := range []string{staging, target} {
				if ok, err := m.IsMountOf(path, dev.Number()); !ok || err != nil {
					t.Errorf("IsMountOf(%s) = %v, %v, want true", path, ok, err)
				}
			}
			if got, err := m.EnsureFormatted(t.Context(), dev, req); !errors.Is(err, fault.DeviceInUse) {
				t.Errorf("EnsureFormatted(mounted) = %q, %v, want %v", got, err, fault.DeviceInUse)
			}
			noError(t, os.WriteFile(filepath.Join(target, "data"), []byte(strings.Repeat("x", 1<<20)), 0o600))
			holders, err := m.Holders(dev.Number())
			if err != nil || len(holders) != 2 {
				t.Errorf("Holders = %v, %v, want the two mounts", holders, err)
			}
			takeDown(t, m, dev, target, staging)
		})
	}
}

// takeDown unmounts and removes paths and proves that the device is free.
func takeDown(t *testing.T, m *machine, dev *loopDevice, paths ...string) {
	t.Helper()
	for _, path := range paths {
		noError(t, m.UnmountAll(t.Context(), path))
		noError(t, m.RemoveTarget(path))
	}
	if err := idle(dev); err != nil {
		t.Error(err)
	}
	if holders, err := m.Holders(dev.Number()); err != nil || len(holders) > 0 {
		t.Errorf("Holders = %v, %v, want none", holders, err)
	}
}

// idle proves that nothing has the device in use: no mount in any mount namespace, no mapping on top,
// no command.
func idle(dev *loopDevice) error {
	f, err := host.Reopen(dev.File(), unix.O_RDONLY|unix.O_EXCL)
	if err != nil {
		return err
	}
	return host.Exclusive{File: f}.Close()
}
