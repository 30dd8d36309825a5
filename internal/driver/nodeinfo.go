package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// NodeInfo is what a node says about itself.
type NodeInfo struct {
	// ID is the CSI node id.
	ID string
	// Zone is the node's place, in the scope of the topology keys; empty: not bound to any.
	Zone string
	// MaxVolumes is how many volumes the node can hold; 0: no limit.
	MaxVolumes int64
}

// NodeGetInfo builds the answer of that name.
func NodeGetInfo(names Names, info NodeInfo) *csi.NodeGetInfoResponse {
	answer := &csi.NodeGetInfoResponse{NodeId: info.ID, MaxVolumesPerNode: info.MaxVolumes}
	if info.Zone != "" {
		answer.AccessibleTopology = &csi.Topology{Segments: names.Segments(info.Zone)}
	}
	return answer
}

// NodeCapabilities lists what the node service of this driver can do. pool: the volumes come from a pool of the node's own,
// whose health the node can tell; that of a cloud it cannot.
func NodeCapabilities(pool bool) []*csi.NodeServiceCapability {
	types := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	}
	if pool {
		types = append(types, csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH)
	}
	list := make([]*csi.NodeServiceCapability, 0, len(types))
	for _, t := range types {
		list = append(list, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return list
}

// NodeIdentity serves NodeGetInfo and NodeGetCapabilities and no other RPC of the node service. A
// controller that runs once per node registers it, because sidecars in per-node mode ask the socket
// they are given, and that is the controller's.
type NodeIdentity struct {
	csi.UnimplementedNodeServer

	names Names
	info  NodeInfo
}

// NewNodeIdentity returns a service that answers with this info.
func NewNodeIdentity(names Names, info NodeInfo) *NodeIdentity {
	return &NodeIdentity{names: names, info: info}
}

// NodeGetInfo answers as the node program does.
func (n *NodeIdentity) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return NodeGetInfo(n.names, n.info), nil
}

// NodeGetCapabilities answers as the node program does.
func (n *NodeIdentity) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: NodeCapabilities(true)}, nil
}
