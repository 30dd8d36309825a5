package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// healthTypes are CSI's values for the kinds of health.
var healthTypes = map[cloud.HealthKind]csi.VolumeHealthErrorType{
	cloud.Degraded:     csi.VolumeHealthErrorType_DEGRADED,
	cloud.Inaccessible: csi.VolumeHealthErrorType_INACCESSIBLE,
	cloud.DataLoss:     csi.VolumeHealthErrorType_DATA_LOSS,
}

// ControllerGetVolumeHealth returns the health of a volume, as far as the cloud reports it.
func (s *Service) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if err := need(s.caps.Health, "ControllerGetVolumeHealth"); err != nil {
		return nil, err
	}
	if err := driver.CheckVolumeID("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	vol, err := s.cloud.GetVolume(ctx, s.volumeID(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: health(req.GetVolumeId(), vol)}, nil
}

// ControllerListVolumeHealth returns the health of the volumes on one page that are not healthy. A page can be empty without being
// the last.
func (s *Service) ControllerListVolumeHealth(ctx context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	if err := need(s.caps.Health, "ControllerListVolumeHealth"); err != nil {
		return nil, err
	}
	at, err := page(req)
	if err != nil {
		return nil, err
	}
	list, err := s.cloud.ListVolumes(ctx, at)
	if err != nil {
		return nil, err
	}
	answer := &csi.ControllerListVolumeHealthResponse{NextToken: list.Next}
	for _, v := range list.Volumes {
		if v.Health.Kind != cloud.Healthy {
			answer.Entries = append(answer.Entries, health(s.handle(v), v))
		}
	}
	return answer, nil
}

func health(handle string, v cloud.Volume) *csi.VolumeHealth {
	answer := &csi.VolumeHealth{VolumeId: handle}
	if v.Health.Kind != cloud.Healthy {
		answer.HealthStatuses = []*csi.VolumeHealth_VolumeHealthEntry{{
			Status: healthTypes[v.Health.Kind], Reason: v.Health.Reason, Message: v.Health.Message,
		}}
	}
	return answer
}
