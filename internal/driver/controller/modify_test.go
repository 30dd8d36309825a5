package controller_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// tagsOf returns the tags that the cloud shows of a volume.
func (r *rig) tagsOf(t *testing.T, id string) []cloud.Tag {
	t.Helper()
	vol, err := r.cloud.GetVolume(ctxOf(t), cloud.VolumeID(id))
	must(t, err)
	return vol.Tags
}

func TestModifyVolume(t *testing.T) {
	r := start(t, memory.Config{}, cloud.Tag{Key: "site", Value: "north"})
	create := request("v")
	create.Parameters = map[string]string{"tags": "team=a,stage=dev", "csi.storage.k8s.io/pvc/name": "data"}
	create.MutableParameters = map[string]string{"tags": "team=b,site=south"}
	made, err := r.CreateVolume(ctxOf(t), create)
	must(t, err)
	id := made.GetVolume().GetVolumeId()
	own := cloud.Tag{Key: "cloudblock-pvc", Value: "data"}
	has := func(want ...cloud.Tag) {
		t.Helper()
		tags := r.tagsOf(t, id)
		slices.SortFunc(tags, func(a, b cloud.Tag) int { return strings.Compare(a.Key, b.Key) })
		if !slices.Equal(tags, want) {
			t.Errorf("the volume has the tags %+v, want %+v", tags, want)
		}
	}
	// mutable_parameters take precedence over parameters.
	has(own, cloud.Tag{Key: "site", Value: "south"}, cloud.Tag{Key: "stage", Value: "dev"}, cloud.Tag{Key: "team", Value: "b"})
	for range 2 {
		_, err := r.ControllerModifyVolume(ctxOf(t), &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"tags": "team=c, cost=1"}})
		wantCode(t, "ControllerModifyVolume", err, codes.OK)
		// Tags that the class does not name stay.
		has(own, cloud.Tag{Key: "cost", Value: "1"}, cloud.Tag{Key: "site", Value: "south"}, cloud.Tag{Key: "stage", Value: "dev"}, cloud.Tag{Key: "team", Value: "c"})
	}
	confirmed, err := r.ValidateVolumeCapabilities(ctxOf(t), &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{filesystem()}, MutableParameters: create.GetMutableParameters(),
	})
	if err != nil || confirmed.GetConfirmed().GetMutableParameters()["tags"] == "" {
		t.Errorf("ValidateVolumeCapabilities = %v, %v, want the mutable parameters confirmed", confirmed, err)
	}
}

func TestModifyVolumeRefusesAndSaysWhatCanBeModified(t *testing.T) {
	r := start(t, memory.Config{})
	id := r.make(t, "v").GetVolumeId()
	for name, tc := range map[string]struct {
		id     string
		params map[string]string
		code   codes.Code
		says   string
	}{
		"no volume":           {"", map[string]string{"tags": "a=b"}, codes.InvalidArgument, "volume_id"},
		"an unknown volume":   {"vol-999", map[string]string{"tags": "a=b"}, codes.NotFound, "vol-999"},
		"nothing":             {id, nil, codes.InvalidArgument, "mutable_parameters: missing"},
		"a type":              {id, map[string]string{"type": "fast"}, codes.InvalidArgument, `mutable_parameters: unknown "type"; known are bandwidth, iops,`},
		"a type next to tags": {id, map[string]string{"tags": "a=b", "type": "fast"}, codes.InvalidArgument, "readIops, tags, write"},
		"the driver's own":    {id, map[string]string{"tags": "cloudblock-cluster=x"}, codes.InvalidArgument, "driver's own"},
		"no tag":              {id, map[string]string{"tags": ""}, codes.InvalidArgument, "key=value"},
		"what is no tag":      {id, map[string]string{"tags": "a"}, codes.InvalidArgument, "key=value"},
		"an enormous request": {id, map[string]string{"tags": string(make([]byte, 5000))}, codes.InvalidArgument, "mutable_parameters"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.ControllerModifyVolume(ctxOf(t), &csi.ControllerModifyVolumeRequest{VolumeId: tc.id, MutableParameters: tc.params})
			wantCode(t, "ControllerModifyVolume", err, tc.code, tc.says)
			if tags := r.tagsOf(t, id); len(tags) > 0 {
				t.Errorf("the volume has the tags %+v", tags)
			}
			if tc.id == "" || tc.id != id || tc.params == nil {
				return
			}
			create := request("other " + name)
			create.MutableParameters = tc.params
			_, err = r.CreateVolume(ctxOf(t), create)
			wantCode(t, "CreateVolume", err, tc.code, tc.says)
		})
	}
	little := start(t, memory.Config{Capabilities: small()})
	create := request("v")
	create.MutableParameters = map[string]string{"tags": "a=b"}
	_, err := little.CreateVolume(ctxOf(t), create)
	wantCode(t, "CreateVolume where nothing can be modified", err, codes.InvalidArgument, "mutable_parameters")
	_, err = little.ControllerModifyVolume(ctxOf(t), &csi.ControllerModifyVolumeRequest{VolumeId: "v", MutableParameters: create.GetMutableParameters()})
	wantCode(t, "ControllerModifyVolume", err, codes.Unimplemented)
}

// Limits of I/O are in the attributes of the PersistentVolume, which the requests of a later change do not have.
func TestLimitsAreSetAtCreateAndStay(t *testing.T) {
	r := start(t, memory.Config{})
	create := request("v")
	create.Parameters = map[string]string{"iops": "1000", "writeBandwidth": "50Mi"}
	create.MutableParameters = map[string]string{"readIops": "300", "bandwidth": "200Mi"}
	made, err := r.CreateVolume(ctxOf(t), create)
	must(t, err)
	said, err := r.names.DecodeVolumeContext(made.GetVolume().GetVolumeContext())
	want := driver.IOLimits{ReadIOPS: 300, WriteIOPS: 1000, ReadBandwidth: 200 << 20, WriteBandwidth: 200 << 20}
	if err != nil || said.Limits != want {
		t.Errorf("the volume context has the limits %+v, %v, want %+v", said.Limits, err, want)
	}
	id := made.GetVolume().GetVolumeId()
	before := r.tagsOf(t, id)
	for name, params := range map[string]map[string]string{
		"another limit":       {"iops": "2000"},
		"the same limit":      {"readIops": "300"},
		"a limit with a tag":  {"bandwidth": "1Gi", "tags": "team=a"},
		"a limit of no sense": {"iops": "fast"},
	} {
		_, err := r.ControllerModifyVolume(ctxOf(t), &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: params})
		wantCode(t, name, err, codes.InvalidArgument)
		if fixed := strings.Contains(err.Error(), "CB-IO-LIMITS-FIXED"); fixed != (name != "a limit of no sense") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := r.tagsOf(t, id); !slices.Equal(before, after) {
		t.Errorf("a refused change has left the tags %v, want %v", after, before)
	}
}
