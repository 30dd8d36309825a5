package controller_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
)

func TestHealth(t *testing.T) {
	r := start(t, memory.Config{})
	types := map[cloud.HealthKind]csi.VolumeHealthErrorType{
		cloud.Healthy: csi.VolumeHealthErrorType_UNKNOWN_VOLUME_HEALTH_TYPE, cloud.Degraded: csi.VolumeHealthErrorType_DEGRADED,
		cloud.Inaccessible: csi.VolumeHealthErrorType_INACCESSIBLE, cloud.DataLoss: csi.VolumeHealthErrorType_DATA_LOSS,
	}
	ill := map[string]cloud.HealthKind{}
	for kind, want := range types {
		id := r.make(t, "volume "+string(kind)).GetVolumeId()
		state := cloud.Health{Kind: kind}
		if kind != cloud.Healthy {
			state.Reason, state.Message = "ImageDamaged", "restore a snapshot"
			ill[id] = kind
		}
		must(t, r.cloud.Account().SetHealth(cloud.VolumeID(id), state))
		answer, err := r.ControllerGetVolumeHealth(ctxOf(t), &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
		statuses := answer.GetVolumeHealth().GetHealthStatuses()
		switch {
		case err != nil || answer.GetVolumeHealth().GetVolumeId() != id:
			t.Errorf("ControllerGetVolumeHealth(%s) = %v, %v", kind, answer, err)
		case kind == cloud.Healthy && len(statuses) > 0:
			t.Errorf("a healthy volume has %v", statuses)
		case kind != cloud.Healthy && (len(statuses) != 1 || statuses[0].GetStatus() != want ||
			statuses[0].GetReason() != state.Reason || statuses[0].GetMessage() != state.Message):
			t.Errorf("a volume of %+v has %v, want %v", state, statuses, want)
		}
	}
	got := map[string]int{}
	for token := ""; ; {
		answer, err := r.ControllerListVolumeHealth(ctxOf(t), &csi.ControllerListVolumeHealthRequest{MaxEntries: 1, StartingToken: token})
		if err != nil || len(answer.GetEntries()) > 1 {
			t.Fatalf("ControllerListVolumeHealth = %v, %v", answer, err)
		}
		for _, e := range answer.GetEntries() {
			got[e.GetVolumeId()]++
			if s := e.GetHealthStatuses(); len(s) != 1 || s[0].GetStatus() != types[ill[e.GetVolumeId()]] {
				t.Errorf("the list has %v, want %s", e, ill[e.GetVolumeId()])
			}
		}
		if token = answer.GetNextToken(); token == "" {
			break
		}
	}
	for id := range ill {
		if got[id] != 1 {
			t.Errorf("%s is %d times in the list, want once", id, got[id])
		}
	}
	if len(got) != len(ill) {
		t.Errorf("the list has %v, want %v", got, ill)
	}
	_, err := r.ControllerGetVolumeHealth(ctxOf(t), &csi.ControllerGetVolumeHealthRequest{})
	wantCode(t, "no id", err, codes.InvalidArgument, "volume_id")
	_, err = r.ControllerGetVolumeHealth(ctxOf(t), &csi.ControllerGetVolumeHealthRequest{VolumeId: "none"})
	wantCode(t, "no such volume", err, codes.NotFound)
	_, err = r.ControllerListVolumeHealth(ctxOf(t), &csi.ControllerListVolumeHealthRequest{StartingToken: "nonsense"})
	wantCode(t, "an unknown token", err, codes.Aborted)
	_, err = r.ControllerListVolumeHealth(ctxOf(t), &csi.ControllerListVolumeHealthRequest{MaxEntries: -1})
	wantCode(t, "a negative number", err, codes.InvalidArgument, "max_entries")
}
