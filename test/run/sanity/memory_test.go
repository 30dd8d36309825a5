package sanity

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/controller"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// memoryBackend is the controller service over the reference backend, which can do everything. It has
// no disks, so the node's side is left to the backends that have.
var memoryBackend = backend{
	name:       "memory",
	size:       1 << 30,
	accessType: "mount",
	start:      startMemory,
	skips: map[string]string{
		"Node Service": "the reference backend has no disks that a node could mount",
	},
	unsupported: map[string]string{
		"GroupControllerService not supported":                 "there are no snapshots of groups",
		"ControllerPublishVolume.readonly field not supported": "whether a volume is read-only is decided on the node",
	},
}

func startMemory(t *testing.T, dir string) (controllerSocket, nodeSocket string) {
	names, err := driver.NewNames("memory", profile.ScopeZone, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	caps := memory.Full()
	caps.SnapshotZones = true // so that the specs about places of snapshots run
	account := memory.NewAccount(memory.Config{
		Capabilities: caps, Nodes: []memory.Node{{ID: "node-1", Zone: "zone-a"}}, OperationTime: time.Millisecond, Slots: 8,
	})
	service := controller.New(middleware.Stack(account.Cluster("a"), wait.Backoff{}), names)
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- driver.Serve(ctx, driver.Config{Names: names, Features: service.Features(), Version: "test", Endpoint: endpoint, Grace: time.Second},
			func(r grpc.ServiceRegistrar) {
				csi.RegisterControllerServer(r, service)
				csi.RegisterNodeServer(r, noDisks{driver.NewNodeIdentity(names, driver.NodeInfo{ID: "node-1", Zone: "zone-a", MaxVolumes: 8})})
			})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return endpoint, endpoint
}

// noDisks is a node on which nothing is ever staged or published; csi-sanity undoes both after each
// spec all the same.
type noDisks struct{ csi.NodeServer }

func (noDisks) NodeUnpublishVolume(context.Context, *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (noDisks) NodeUnstageVolume(context.Context, *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, nil
}
