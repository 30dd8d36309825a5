package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
)

func TestWhatKeepsAVolumeFromUnstageIsExplained(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want fault.Reason
	}{
		"a mount":                 {fmt.Errorf("the volume is in use at /x: %w", fault.Precondition), fault.UnstageInUse},
		"a detach that must wait": {fmt.Errorf("/dev/loop1: %w", fault.Busy), fault.UnstageInUse},
		"an open disk":            {fmt.Errorf("/dev/sda: %w", fault.DeviceInUse), fault.UnstageInUse},
		"another disk":            {fmt.Errorf("/dev/sda: %w", fault.DeviceIdentity), fault.DeviceIdentity},
		"a missing program":       {fmt.Errorf("umount: %w", fault.ProgramMissing), fault.ProgramMissing},
		"no answer":               {fault.Unavailable, fault.NoReason},
	} {
		t.Run(name, func(t *testing.T) {
			got := explainUnstage(tc.err)
			if fault.ReasonOf(got) != tc.want || fault.Of(got) != fault.Of(tc.err) || got.Error() != tc.err.Error() {
				t.Errorf("explainUnstage(%v) = %v for %q, want %q", tc.err, got, string(fault.ReasonOf(got)), string(tc.want))
			}
		})
	}
}

// busy is a Resolver with one disk that cannot be released.
type busy struct {
	device.Resolver
	number uint64
}

func (b busy) Number(context.Context, device.Spec) (uint64, error) { return b.number, nil }
func (b busy) Release(context.Context, device.Spec) error          { return fault.Busy }

// After a restart the place leads to the volume again, which is still mounted there and may have a disk that hangs.
func TestAnUnstageThatFailsKeepsThePlaceOnRecord(t *testing.T) {
	dir := t.TempDir()
	records := device.NewRecords(filepath.Join(dir, "records"))
	spec := device.Spec{Volume: "v", Serial: "s-1", Place: filepath.Join(dir, "staging")}
	must(t, records.Remember(spec))
	s := New(Config{Devices: busy{number: unix.Mkdev(4095, 1)}, Records: records, Mounter: mount.New(mount.Config{Dir: dir, Sysfs: host.Sysfs(t.TempDir())})})
	_, err := s.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: spec.Place})
	if !errors.Is(err, fault.Busy) {
		t.Fatalf("NodeUnstageVolume = %v, want %v", err, fault.Busy)
	}
	if got, _ := records.Recall("v"); got != spec {
		t.Errorf("the record is %+v, want %+v", got, spec)
	}
}
