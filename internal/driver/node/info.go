package node

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// NodeGetInfo says which machine this is, where, and how many volumes it can have now.
func (s *Server) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	info := s.info
	var err error
	if info.MaxVolumes, err = s.maxVolumes(); err != nil {
		return nil, fmt.Errorf("how many volumes can this machine have: %w", err)
	}
	return driver.NodeGetInfo(s.names, info), nil
}

// NodeGetCapabilities says what this service can do.
func (s *Server) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: driver.NodeCapabilities(s.backend != nil)}, nil
}
