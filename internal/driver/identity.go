package driver

import (
	"context"
	"sync/atomic"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Features are the capabilities of the plugin that not every cloud has. CSI requires that all instances report the same ones,
// regardless of where they run and which services they have, so both programs do.
type Features struct {
	// SnapshotZones: a snapshot can be restored only in its zone.
	SnapshotZones bool
	// SnapshotBlocks: the controller has the service SnapshotMetadata.
	SnapshotBlocks bool
}

// identity is the CSI Identity service. Both programs return the same answers, because CSI requires that of all instances of one
// version.
type identity struct {
	csi.UnimplementedIdentityServer

	names    Names
	version  string
	features Features
	draining atomic.Bool
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.names.Driver, VendorVersion: i.version}, nil
}

func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
	}
	list := []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}}},
	}
	if i.features.SnapshotZones {
		list = append(list, service(csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS))
	}
	if i.features.SnapshotBlocks {
		list = append(list, service(csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE))
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: list}, nil
}

// Probe reports only whether this program accepts calls. A restart would not help if the cloud is down.
func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(!i.draining.Load())}, nil
}

// NodeInfo describes a node.
type NodeInfo struct {
	// ID is the CSI node id.
	ID string
	// Zone is the node's place, in the scope of the topology keys; empty: none.
	Zone string
	// MaxVolumes is the maximum number of volumes of the node; 0: no limit.
	MaxVolumes int64
}

// NodeGetInfo returns the response of the RPC NodeGetInfo.
func NodeGetInfo(names Names, info NodeInfo) *csi.NodeGetInfoResponse {
	answer := &csi.NodeGetInfoResponse{NodeId: info.ID, MaxVolumesPerNode: info.MaxVolumes}
	if info.Zone != "" {
		answer.AccessibleTopology = &csi.Topology{Segments: names.Segments(info.Zone)}
	}
	return answer
}

// NodeCapabilities returns the capabilities of the node service. pool: the volumes are in a pool of the node, whose health the node
// can report; it cannot report the health of a cloud.
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

// NodeIdentity serves NodeGetInfo and NodeGetCapabilities and no other RPC of the node service. A controller that runs once per
// node registers it, because sidecars in per-node mode send these RPCs to their only socket, which is the controller's.
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
