package controller

import (
	"context"
	"fmt"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// ControllerPublishVolume attaches a volume to a node and returns how the node finds the device.
func (s *Service) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := need(s.caps.Attach, "ControllerPublishVolume"); err != nil {
		return nil, err
	}
	if err := driver.CheckVolumeID("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := driver.CheckNodeID("node_id", req.GetNodeId()); err != nil {
		return nil, err
	}
	if err := driver.CheckCapability("volume_capability", req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if req.GetReadonly() {
		return nil, fmt.Errorf("readonly: not offered at this step; the node publishes read-only: %w", fault.InvalidArgument)
	}
	said, err := s.names.DecodeVolumeContext(req.GetVolumeContext())
	if err != nil {
		return nil, err
	}
	release, err := s.lockVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	device, err := s.cloud.Attach(ctx, s.volumeID(req.GetVolumeId()), cloud.NodeID(req.GetNodeId()))
	if err != nil {
		return nil, err
	}
	s.putHandle(req.GetVolumeId())
	return &csi.ControllerPublishVolumeResponse{PublishContext: s.names.EncodePublishContext(driver.PublishContext{
		DeviceName: device.Name,
		Serial:     device.Serial,
		Size:       said.Size,
	})}, nil
}

// ControllerUnpublishVolume detaches a volume from a node, or from any node if the request names none. A volume or node that does not
// exist is no error. The backend returns only when the volume is detached.
func (s *Service) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := need(s.caps.Attach, "ControllerUnpublishVolume"); err != nil {
		return nil, err
	}
	if err := driver.CheckVolumeID("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if req.GetNodeId() != "" {
		if err := driver.CheckNodeID("node_id", req.GetNodeId()); err != nil {
			return nil, err
		}
	}
	release, err := s.lockVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	err = s.cloud.Detach(ctx, s.volumeID(req.GetVolumeId()), cloud.NodeID(req.GetNodeId()))
	if err != nil && !goneForSure(err) {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// maxHandles is the maximum number of stored handles. The next attach stores a lost handle again.
const maxHandles = 20_000

// handles has the handles of volumes in their PersistentVolumes by the id, if a vendor's handle also has the name that the volume
// had at its creation. The attacher compares these handles with those of ListVolumes: a renamed volume that is listed under its new
// name, or one that a person has taken in under its id alone, counts as detached, and is attached again at each comparison. Nothing else
// depends on handles.
type handles struct {
	mu sync.Mutex
	of map[string]string
}

// putHandle stores the handle in a request for an attachment.
func (s *Service) putHandle(handle string) {
	id := s.names.VolumeID(handle)
	s.handles.mu.Lock()
	defer s.handles.mu.Unlock()
	if handle == id && s.names.Vendor.Handle(id, id) == id { // as it is listed without being stored
		delete(s.handles.of, id)
		return
	}
	if s.handles.of == nil || len(s.handles.of) >= maxHandles {
		s.handles.of = map[string]string{}
	}
	s.handles.of[id] = handle
}

// handle returns the handle of a volume.
func (s *Service) handle(v cloud.Volume) string {
	s.handles.mu.Lock()
	defer s.handles.mu.Unlock()
	if handle, known := s.handles.of[string(v.ID)]; known {
		return handle
	}
	return s.names.Vendor.Handle(string(v.ID), v.Name)
}
