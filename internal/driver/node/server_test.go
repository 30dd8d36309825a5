package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var names = driver.Names{
	Driver:   "local.csi.cloudblock.io",
	Topology: []driver.TopologyKey{{Key: "topology.local.csi.cloudblock.io/node", Scope: profile.ScopeNode}},
}

// serve runs the Node service on a real socket, with the project's own server around it.
func serve(t *testing.T, devices device.Resolver, m *mount.Mounter) csi.NodeClient {
	t.Helper()
	return serveWith(t, node.Config{Devices: devices, Mounter: m}, driver.Config{})
}

func serveWith(t testing.TB, cfg node.Config, around driver.Config) csi.NodeClient {
	t.Helper()
	return csi.NewNodeClient(connect(t, cfg, around))
}

// connect is serveWith for calls of any method.
func connect(t testing.TB, cfg node.Config, around driver.Config) *grpc.ClientConn {
	t.Helper()
	cfg.Names, cfg.Info = names, driver.NodeInfo{ID: "node-a", Zone: "node-a"}
	server := node.New(cfg)
	t.Cleanup(func() { // when nothing is served any more
		waiting, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		expect.Kind(t, "Wait", server.Wait(waiting), fault.None)
	})
	around.Names, around.Grace = names, time.Minute
	return drivertest.Serve(t, around, func(r grpc.ServiceRegistrar) { csi.RegisterNodeServer(r, server) })
}

func mountCapability(fs string, mode csi.VolumeCapability_AccessMode_Mode, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fs, MountFlags: flags}},
	}
}

func blockCapability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

const (
	oneNode      = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	oneNodeRead  = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	oneNodeOne   = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	oneNodeMany  = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	manyNodes    = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	anyGoodID    = "node-a/0123456789abcdef0123456789abcdef"
	writtenBytes = "what the pod wrote"
)

// The health of a cloud does not show on a node, which does not say that it can tell it.
func TestStorageHealthOfACloud(t *testing.T) {
	client := serve(t, nil, mount.New(mount.Config{}))
	_, err := client.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("NodeGetStorageHealth = %v, want Unimplemented", err)
	}
	answer, err := client.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
	must(t, err)
	for _, c := range answer.GetCapabilities() {
		if c.GetRpc().GetType() == csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH {
			t.Error("the storage's health is among the capabilities")
		}
	}
}
