package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// healthTypes are CSI's words for the kinds of ill health.
var healthTypes = map[cloud.HealthKind]csi.VolumeHealthErrorType{
	cloud.Degraded:     csi.VolumeHealthErrorType_DEGRADED,
	cloud.Inaccessible: csi.VolumeHealthErrorType_INACCESSIBLE,
	cloud.DataLoss:     csi.VolumeHealthErrorType_DATA_LOSS,
}

// ControllerGetVolumeHealth returns what is wrong with a volume, as far as the cloud knows.
func (s *Service) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if err := need(s.caps.Health, "ControllerGetVolumeHealth"); err != nil {
		return nil, err
	}
	if err := driver.CheckVolumeID("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	vol, err := s.cloud.GetVolume(ctx, cloud.VolumeID(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: health(vol)}, nil
}

// ControllerListVolumeHealth returns those of one page of the volumes with which something is wrong.
// A page may be empty and yet not be the last.
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
			answer.Entries = append(answer.Entries, health(v))
		}
	}
	return answer, nil
}

func health(v cloud.Volume) *csi.VolumeHealth {
	answer := &csi.VolumeHealth{VolumeId: string(v.ID)}
	if v.Health.Kind != cloud.Healthy {
		answer.HealthStatuses = []*csi.VolumeHealth_VolumeHealthEntry{{
			Status: healthTypes[v.Health.Kind], Reason: v.Health.Reason, Message: v.Health.Message,
		}}
	}
	return answer
}
