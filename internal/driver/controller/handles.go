package controller

import (
	"sync"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
)

// maxHandles bounds what is kept. A handle that is lost is found again with the next attach.
const maxHandles = 20_000

// handles keeps how PersistentVolumes write the ids of volumes, where a vendor's handle also holds the name that the
// volume had when it was made. The attacher compares the handles of the list with theirs: a renamed volume that is
// listed under its new name counts as detached, and is attached once more at each comparison. Nothing else depends on it.
type handles struct {
	mu sync.Mutex
	of map[string]string
}

// putHandle keeps a handle that a request for an attachment has.
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
