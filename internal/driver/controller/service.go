// Package controller is the CSI Controller service over any cloud.Cloud. It keeps no state that a call needs: all of that is in the
// request or in the cloud, so the program can be killed between any two calls.
package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Service implements csi.ControllerServer.
type Service struct {
	csi.UnimplementedControllerServer

	cloud cloud.Cloud
	caps  cloud.Capabilities
	names driver.Names
	tags  []cloud.Tag

	handles handles
	locks   driver.Locks
}

// New returns a service over a cloud. Every volume and snapshot that it creates gets the tags.
func New(c cloud.Cloud, names driver.Names, tags ...cloud.Tag) *Service {
	return &Service{cloud: c, caps: c.Capabilities(), names: names, tags: tags}
}

// Features returns the plugin's capabilities that depend on the cloud, for GetPluginCapabilities.
func (s *Service) Features() driver.Features {
	return driver.Features{SnapshotZones: s.caps.SnapshotZones, SnapshotBlocks: s.caps.SnapshotBlocks}
}

// ControllerGetCapabilities returns the capabilities of the cloud.
func (s *Service) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if s.caps.Attach {
		types = append(types, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
			csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	if s.caps.Expand {
		types = append(types, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	}
	if s.caps.Modify {
		types = append(types, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	}
	if s.caps.Snapshots {
		types = append(types, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
			csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS, csi.ControllerServiceCapability_RPC_GET_SNAPSHOT)
	}
	if s.caps.Clones {
		types = append(types, csi.ControllerServiceCapability_RPC_CLONE_VOLUME)
	}
	if s.caps.Capacity {
		types = append(types, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	}
	if s.caps.Health {
		types = append(types, csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
			csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH)
	}
	list := make([]*csi.ControllerServiceCapability, 0, len(types))
	for _, t := range types {
		list = append(list, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: list}, nil
}

// volumeID returns the cloud's id of the volume with a handle.
func (s *Service) volumeID(handle string) cloud.VolumeID {
	return cloud.VolumeID(s.names.VolumeID(handle))
}

// lockVolume locks a volume while a call changes it. All forms of its handle have the same lock.
func (s *Service) lockVolume(handle string) (release func(), err error) {
	return s.locks.Acquire(driver.OfVolume(string(s.volumeID(handle))))
}

// need refuses a call that this cloud does not advertise, before any other check.
func need(advertised bool, call string) error {
	if !advertised {
		return fmt.Errorf("%s: not with this cloud: %w", call, fault.Unsupported)
	}
	return nil
}

// volume returns a volume in CSI's form, without its context.
func (s *Service) volume(v cloud.Volume) *csi.Volume {
	return &csi.Volume{
		VolumeId:           s.handle(v),
		CapacityBytes:      int64(v.Size),
		ContentSource:      contentSource(v.Source),
		AccessibleTopology: s.topology(v.Zone),
	}
}

func (s *Service) topology(zone string) []*csi.Topology {
	if zone == "" {
		return nil
	}
	return []*csi.Topology{{Segments: s.names.Segments(zone)}}
}

func contentSource(source cloud.Source) *csi.VolumeContentSource {
	switch {
	case source.Snapshot != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: string(source.Snapshot)},
		}}
	case source.Volume != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: string(source.Volume)},
		}}
	default:
		return nil
	}
}

func nodeIDs(nodes []cloud.NodeID) []string {
	ids := make([]string, 0, len(nodes))
	for _, n := range nodes {
		ids = append(ids, string(n))
	}
	return ids
}
