package controller

import (
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// maxHandles is the maximum number of stored handles. The next attach stores a lost handle again.
const maxHandles = 20_000

// handles has the handles of volumes in their PersistentVolumes by the id, if a vendor's handle also has the name that the volume
// had at its creation. The attacher compares these handles with those of ListVolumes: a renamed volume that is listed under its new
// name counts as detached, and is attached again at each comparison. Nothing else depends on handles.
type handles struct {
	mu sync.Mutex
	of map[string]string
}

// putHandle stores the handle in a request for an attachment.
func (s *Service) putHandle(handle string) {
	id := s.names.Vendor.ID(handle)
	if id == handle {
		return
	}
	s.handles.mu.Lock()
	defer s.handles.mu.Unlock()
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
