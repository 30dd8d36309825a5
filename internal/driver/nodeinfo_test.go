package driver_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

func TestNodeIdentity(t *testing.T) {
	n := names(t)
	node := driver.NewNodeIdentity(n, driver.NodeInfo{ID: "node-a", Zone: "node-a", MaxVolumes: 5})
	want := &csi.NodeGetInfoResponse{
		NodeId: "node-a", MaxVolumesPerNode: 5,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{"topology.local.csi.cloudblock.io/node": "node-a"}},
	}
	if got, err := node.NodeGetInfo(t.Context(), nil); err != nil || !proto.Equal(got, want) {
		t.Errorf("NodeGetInfo = %v, %v, want %v", got, err, want)
	}
	caps, err := node.NodeGetCapabilities(t.Context(), nil)
	must(t, err)
	for i, want := range driver.NodeCapabilities(true) {
		if !proto.Equal(caps.GetCapabilities()[i], want) {
			t.Errorf("capability %d = %v, want %v", i, caps.GetCapabilities()[i], want)
		}
	}
	if _, err := node.NodeStageVolume(t.Context(), nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("NodeStageVolume: %v, want Unimplemented", err)
	}
	if got := driver.NodeGetInfo(n, driver.NodeInfo{ID: "x"}); got.GetAccessibleTopology() != nil {
		t.Errorf("a node without a place has the topology %v", got.GetAccessibleTopology())
	}
}
