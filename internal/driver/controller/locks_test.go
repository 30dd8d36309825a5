package controller_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

type change func(ctx context.Context, r *rig, volume string) error

// changes are the calls that change something, by their call of the backend.
var changes = map[memory.Call]change{
	memory.CallCreateVolume: func(ctx context.Context, r *rig, _ string) error {
		_, err := r.CreateVolume(ctx, request("new"))
		return err
	},
	memory.CallDeleteVolume: func(ctx context.Context, r *rig, volume string) error {
		_, err := r.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volume})
		return err
	},
	memory.CallAttach: func(ctx context.Context, r *rig, volume string) error {
		_, err := r.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId: volume, NodeId: "node-1", VolumeCapability: filesystem(),
			VolumeContext: r.names.EncodeVolumeContext(driver.VolumeContext{DeviceName: volume, Serial: volume, Size: 2 * gib, Content: driver.ContentBlank}),
		})
		return err
	},
	memory.CallDetach: func(ctx context.Context, r *rig, volume string) error {
		_, err := r.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: "node-1"})
		return err
	},
	memory.CallExpandVolume: func(ctx context.Context, r *rig, volume string) error {
		_, err := r.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId: volume, CapacityRange: &csi.CapacityRange{RequiredBytes: 3 * gib},
		})
		return err
	},
	memory.CallModifyVolume: func(ctx context.Context, r *rig, volume string) error {
		_, err := r.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
			VolumeId: volume, MutableParameters: map[string]string{"tags": "team=a"},
		})
		return err
	},
	memory.CallCreateSnapshot: func(ctx context.Context, r *rig, volume string) error {
		_, err := r.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "new", SourceVolumeId: volume})
		return err
	},
	memory.CallDeleteSnapshot: func(ctx context.Context, r *rig, _ string) error {
		_, err := r.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: "s"})
		return err
	},
}

// P2: a second change of a volume or snapshot is Aborted while the first one runs.
func TestASecondChangeOfWhatIsBeingChangedIsAborted(t *testing.T) {
	onVolume := []memory.Call{memory.CallDeleteVolume, memory.CallDetach, memory.CallAttach, memory.CallExpandVolume, memory.CallModifyVolume}
	for held, begin := range changes {
		t.Run(string(held), func(t *testing.T) {
			r := start(t, memory.Config{})
			volume, other := r.make(t, "a").GetVolumeId(), r.make(t, "b").GetVolumeId()
			release, done := make(chan struct{}), make(chan error, 1)
			r.cloud.Account().Arm(held, memory.Hold(release))
			ctx := ctxOf(t)
			go func() { done <- begin(ctx, r, volume) }()
			untilHeld(t, r, held)

			wantCode(t, "the same change", begin(ctx, r, volume), codes.Aborted, "another call")
			for _, call := range onVolume {
				if slices.Contains(onVolume, held) {
					wantCode(t, string(call)+" of the same volume", changes[call](ctx, r, volume), codes.Aborted, volume)
				}
			}
			if _, err := r.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: volume}); err != nil {
				t.Errorf("a read meets the lock: %v", err)
			}
			wantCode(t, "a change of another volume", changes[memory.CallDeleteVolume](ctx, r, other), codes.OK)

			close(release)
			wantCode(t, "the first change", <-done, codes.OK)
			if err := begin(ctx, r, volume); status.Code(err) == codes.Aborted {
				t.Errorf("the lock is still held after the change: %v", err)
			}
		})
	}
}

// untilHeld returns when the armed call has reached the backend.
func untilHeld(t *testing.T, r *rig, call memory.Call) {
	t.Helper()
	expect.Eventually(t, string(call)+" comes to the backend", func() bool { return r.cloud.Account().Armed(call) == 0 })
}

func TestALockEndsWithItsCall(t *testing.T) {
	for call, begin := range changes {
		for how, f := range map[string]memory.Fault{
			"the caller leaves": memory.HoldAnswer(make(chan struct{})),
			"the backend fails": memory.LoseAnswer(),
		} {
			t.Run(string(call)+", "+how, func(t *testing.T) {
				r := start(t, memory.Config{})
				volume := r.make(t, "a").GetVolumeId()
				r.cloud.Account().Arm(call, f)
				left, cancel := context.WithTimeout(ctxOf(t), 50*time.Millisecond)
				defer cancel()
				if err := begin(left, r, volume); err == nil {
					t.Fatal("the call ended well, so the test proves nothing")
				}
				// The caller's deadline may end before the program's: the handler gets a moment to end.
				expect.Eventually(t, "the lock ends with its call", func() bool { return status.Code(begin(ctxOf(t), r, volume)) != codes.Aborted })
			})
		}
	}
}
