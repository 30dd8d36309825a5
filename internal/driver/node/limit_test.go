package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// TestAStageWithoutADeadlineEnds: a caller that sets no deadline waits no longer than the program's own limit for a disk
// that never appears, and the volume is free for the next call.
func TestAStageWithoutADeadlineEnds(t *testing.T) {
	client := serveWith(t, node.Config{
		Devices: device.NewByID(device.ByIDConfig{DeviceDir: t.TempDir()}),
		Records: device.NewRecords(t.TempDir()), Mounter: mount.New(mount.Config{}),
	}, driver.Config{CallLimit: 200 * time.Millisecond})
	for range 2 {
		answered := make(chan error, 1)
		go func() {
			_, err := client.NodeStageVolume(context.WithoutCancel(t.Context()), &csi.NodeStageVolumeRequest{
				VolumeId: "disk-1", StagingTargetPath: t.TempDir(), VolumeCapability: mountCapability("ext4", oneNode),
				VolumeContext: map[string]string{names.Driver + "/device-name": "virtio-disk-1", names.Driver + "/serial": "disk-1"},
			})
			answered <- err
		}()
		select {
		case err := <-answered:
			if status.Code(err) != codes.Unavailable {
				t.Errorf("NodeStageVolume of a disk that never appears = %v, want %v", err, codes.Unavailable)
			}
		case <-drivertest.Waiting(t).Done():
			t.Fatal("NodeStageVolume without a deadline does not end")
		}
	}
}
