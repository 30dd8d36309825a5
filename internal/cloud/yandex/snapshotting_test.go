package yandex_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// A snapshot may take hours and changes nothing of its disk. No call for the disk that is refused or repeated waits for it.
func TestNothingWaitsForASnapshotOfTheDisk(t *testing.T) {
	simulated(t, func(t *testing.T) {
		folder := start(t, emulator.Options{Durations: emulator.Durations{Snapshot: clock.Fixed(2 * time.Hour)}})
		c := open(t, folder, func(cfg *yandex.Config) { cfg.SweepEvery = -1 })
		vol := volume(t, c, "a")
		takeSnapshot(t, c, cloud.CreateSnapshotRequest{Name: "snap", Volume: vol.ID})
		folder.Arm(emulator.Fault{Route: attachDisk, Times: 1, Effect: faults.Effect{Status: int(codes.FailedPrecondition), Message: "busy"}})
		attach := func(ctx context.Context) error { _, err := c.Attach(ctx, vol.ID, node1); return err }
		detach := func(ctx context.Context) error { return c.Detach(ctx, vol.ID, node1) }
		expand := func(ctx context.Context) error { _, err := c.ExpandVolume(ctx, vol.ID, 2*cloud.GiB); return err }
		create := func(ctx context.Context) error { _, err := stack(c).CreateVolume(ctx, request("a")); return err }
		for n, do := range []func(ctx context.Context) error{attach, attach, detach, detach, create, expand, expand} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := do(ctx); err != nil {
				t.Errorf("call %d: %v", n, err)
			}
		}
	})
}
