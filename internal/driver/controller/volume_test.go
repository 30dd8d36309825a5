package controller_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

func TestCreateVolumeAnswersWithWhatWasMade(t *testing.T) {
	r := start(t, memory.Config{}, cloud.Tag{Key: "team", Value: "a"}, cloud.Tag{Key: "site", Value: "x"})
	req := request("pvc-1")
	req.CapacityRange = &csi.CapacityRange{RequiredBytes: gib + 1, LimitBytes: 3 * gib}
	req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: topology("zone-b")}
	req.Parameters = map[string]string{
		"mkfsOptions": "-E lazy_itable_init=0", "formatNonZero": "true", "tags": "team=b, purpose=test", "type": "fast",
		"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "pvc-1",
	}
	answer, err := r.CreateVolume(ctxOf(t), req)
	must(t, err)
	id := answer.GetVolume().GetVolumeId()
	want := &csi.Volume{
		VolumeId: id, CapacityBytes: 2 * gib, AccessibleTopology: topology("zone-b"),
		VolumeContext: r.names.EncodeVolumeContext(driver.VolumeContext{
			DeviceName: id, Serial: id, Size: 2 * gib, Content: driver.ContentBlank,
			MkfsOptions: []string{"-E", "lazy_itable_init=0"}, FormatNonZero: true,
		}),
	}
	if !proto.Equal(answer.GetVolume(), want) {
		t.Errorf("CreateVolume = %v, want %v", answer.GetVolume(), want)
	}
	made, err := r.cloud.GetVolume(t.Context(), cloud.VolumeID(id))
	must(t, err)
	wantTags := []cloud.Tag{
		{Key: "cloudblock-pv", Value: "pvc-1"}, {Key: "cloudblock-pvc", Value: "data"}, {Key: "cloudblock-pvc-namespace", Value: "shop"},
		{Key: "purpose", Value: "test"}, {Key: "site", Value: "x"}, {Key: "team", Value: "b"},
	}
	slices.SortFunc(made.Tags, func(a, b cloud.Tag) int { return strings.Compare(a.Key, b.Key) })
	if !slices.Equal(made.Tags, wantTags) || !slices.Equal(made.Parameters, []cloud.Parameter{{Name: "type", Value: "fast"}}) {
		t.Errorf("the cloud has tags %v and parameters %v, want %v and type=fast", made.Tags, made.Parameters, wantTags)
	}
}

func TestCreateVolumeRefuses(t *testing.T) {
	r := start(t, memory.Config{})
	few := start(t, memory.Config{Capabilities: small()})
	many := capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
	tests := map[string]struct {
		change func(*csi.CreateVolumeRequest)
		few    bool
		code   codes.Code
		says   string
	}{
		"no name":                         {func(q *csi.CreateVolumeRequest) { q.Name = "" }, false, codes.InvalidArgument, "name: missing"},
		"a name of 129 bytes":             {func(q *csi.CreateVolumeRequest) { q.Name = strings.Repeat("n", 129) }, false, codes.InvalidArgument, "name: longer"},
		"a name with a control character": {func(q *csi.CreateVolumeRequest) { q.Name = "a\x01" }, false, codes.InvalidArgument, "name: "},
		"no capabilities":                 {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = nil }, false, codes.InvalidArgument, "volume_capabilities: missing"},
		"one capability of two impossible": {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = append(q.VolumeCapabilities, many) }, false,
			codes.InvalidArgument, "volume_capabilities[1]: access_mode"},
		"mutable parameters":   {func(q *csi.CreateVolumeRequest) { q.MutableParameters = map[string]string{"a": "b"} }, false, codes.InvalidArgument, "mutable_parameters"},
		"an unknown parameter": {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"shred": "true"} }, false, codes.InvalidArgument, `unknown "shred"; known are bandwidth, csi.storage.k8s.io/fstype`},
		"a parameter of another cloud": {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"type": "fast"} }, true,
			codes.InvalidArgument, `unknown "type"`},
		"encryption where there is none": {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"encrypted": "true"} }, false,
			codes.InvalidArgument, `unknown "encrypted"`},
		"parameters above 4 KiB": {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"tags": strings.Repeat("t", 4096)} }, false,
			codes.InvalidArgument, "parameters: larger"},
		"a filesystem only in the class": {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"csi.storage.k8s.io/fstype": "xfs"} }, false,
			codes.InvalidArgument, "differs from fs_type"},
		"topology of another driver": {func(q *csi.CreateVolumeRequest) {
			q.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"a/b": "c"}}}}
		}, false, codes.InvalidArgument, "accessibility_requirements: no entry has one place under the key " + zoneKey},
		"a place that is no label": {func(q *csi.CreateVolumeRequest) {
			q.AccessibilityRequirements = &csi.TopologyRequirement{Preferred: topology("../x")}
		}, false, codes.InvalidArgument, "accessibility_requirements.preferred[0]"},
		"a place that does not exist": {func(q *csi.CreateVolumeRequest) {
			q.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: topology("mars")}
		}, false, codes.ResourceExhausted, "mars"},
		"a size below zero":            {func(q *csi.CreateVolumeRequest) { q.CapacityRange.RequiredBytes = -1 }, false, codes.InvalidArgument, "capacity_range.required_bytes"},
		"a source of a future kind":    {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = &csi.VolumeContentSource{} }, false, codes.InvalidArgument, "volume_content_source: neither"},
		"a snapshot, on a small cloud": {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromSnapshot("s") }, true, codes.InvalidArgument, "as its dataSource"},
		"a volume, on a small cloud":   {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromVolume("v") }, true, codes.InvalidArgument, "no clones"},
		"a hostile snapshot":           {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromSnapshot("../s") }, false, codes.InvalidArgument, "volume_content_source.snapshot_id"},
		"a hostile volume":             {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromVolume("v?x=1") }, false, codes.InvalidArgument, "volume_content_source.volume_id"},
		"a snapshot that is not there": {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromSnapshot("none") }, false, codes.NotFound, "none"},
		"a volume that is not there":   {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromVolume("none") }, false, codes.NotFound, "none"},
		"a volume that is not there, and no size": {func(q *csi.CreateVolumeRequest) {
			q.VolumeContentSource, q.CapacityRange = fromVolume("none"), nil
		}, false, codes.NotFound, "none"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			req, on := request("refused"), r
			tc.change(req)
			if tc.few {
				on = few
			}
			_, err := on.CreateVolume(ctxOf(t), req)
			wantCode(t, "CreateVolume", err, tc.code, tc.says)
		})
	}
	for _, on := range []*rig{r, few} {
		if list, err := on.cloud.ListVolumes(t.Context(), cloud.Page{}); err != nil || len(list.Volumes) > 0 {
			t.Errorf("refused requests left %v, %v", list.Volumes, err)
		}
	}
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id},
	}}
}

func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id},
	}}
}

// A full cloud is ResourceExhausted, and nothing is left behind.
// C17: a claim of less than a node can format gets what it can, because otherwise its pod never starts.
func TestCreateVolumeIsLargeEnoughForItsFilesystem(t *testing.T) {
	caps := memory.Full()
	caps.SizeStep, caps.SmallestVolume = cloud.MiB, 16*cloud.MiB
	r := start(t, memory.Config{Capabilities: caps})
	const mib = int64(cloud.MiB)
	for name, tc := range map[string]struct {
		filesystem, luks string
		block            bool
		asked, want      int64
	}{
		"ext4":                    {"ext4", "false", false, 20 * mib, 20 * mib},
		"the default filesystem":  {"", "false", false, 20 * mib, 20 * mib},
		"a raw device":            {"", "false", true, 20 * mib, 20 * mib},
		"xfs":                     {"xfs", "false", false, 100 * mib, 300 * mib},
		"xfs that fits":           {"xfs", "false", false, 301 * mib, 301 * mib},
		"xfs behind a header":     {"xfs", "true", false, 301 * mib, 316 * mib},
		"ext4 behind a header":    {"ext4", "true", false, 20 * mib, 64 * mib},
		"a raw encrypted device":  {"", "true", true, 20 * mib, 64 * mib},
		"less than the cloud has": {"ext4", "false", false, mib, 16 * mib},
	} {
		req := request(name)
		req.CapacityRange = &csi.CapacityRange{RequiredBytes: tc.asked}
		req.Parameters = map[string]string{"luks": tc.luks}
		if req.VolumeCapabilities[0].GetMount().FsType = tc.filesystem; tc.block {
			req.VolumeCapabilities[0] = block()
		}
		answer, err := r.CreateVolume(ctxOf(t), req)
		if got := answer.GetVolume().GetCapacityBytes(); err != nil || got != tc.want {
			t.Errorf("%s: CreateVolume of %d bytes = %d, %v, want %d", name, tc.asked, got, err, tc.want)
		}
	}
	req := request("no room for it")
	req.CapacityRange = &csi.CapacityRange{RequiredBytes: 100 * mib, LimitBytes: 200 * mib}
	req.VolumeCapabilities[0].GetMount().FsType = "xfs"
	_, err := r.CreateVolume(ctxOf(t), req)
	wantCode(t, "CreateVolume of an xfs with a limit below the smallest", err, codes.OutOfRange, "at least 300 MiB")
}

func TestCreateVolumeOnAFullCloud(t *testing.T) {
	r := start(t, memory.Config{Space: cloud.GiB})
	_, err := r.CreateVolume(ctxOf(t), request("big"))
	wantCode(t, "CreateVolume", err, codes.ResourceExhausted)
	if list, err := r.cloud.ListVolumes(t.Context(), cloud.Page{}); err != nil || len(list.Volumes) > 0 {
		t.Errorf("left behind: %v, %v", list.Volumes, err)
	}
}

// C3 and C4: a copy has its source, at least the source's size, and is never formatted.
func TestCreateVolumeFromASource(t *testing.T) {
	r := start(t, memory.Config{})
	origin, err := r.CreateVolume(ctxOf(t), &csi.CreateVolumeRequest{
		Name: "origin", CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * gib}, VolumeCapabilities: []*csi.VolumeCapability{block()},
	})
	must(t, err)
	id := origin.GetVolume().GetVolumeId()
	snap, err := r.CreateSnapshot(ctxOf(t), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id})
	must(t, err)
	for name, source := range map[string]*csi.VolumeContentSource{
		"snapshot": fromSnapshot(snap.GetSnapshot().GetSnapshotId()), "volume": fromVolume(id),
	} {
		for size, want := range map[int64]int64{0: 20 * gib, 25 * gib: 25 * gib} {
			req := request("copy of a " + name + strings.Repeat("+", int(size/gib)))
			req.VolumeContentSource, req.CapacityRange = source, nil
			if size > 0 {
				req.CapacityRange = &csi.CapacityRange{RequiredBytes: size}
			}
			answer, err := r.CreateVolume(ctxOf(t), req)
			if err != nil {
				t.Fatalf("CreateVolume(%s): %v", req.GetName(), err)
			}
			vol := answer.GetVolume()
			context, err := r.names.DecodeVolumeContext(vol.GetVolumeContext())
			if err != nil || context.Content != driver.ContentCopy || vol.GetCapacityBytes() != want || !proto.Equal(vol.GetContentSource(), source) {
				t.Errorf("CreateVolume(%s) = %v (%v), want %d bytes, a copy of %v", req.GetName(), vol, err, want, source)
			}
		}
	}
	req := request("too small")
	req.VolumeContentSource = fromVolume(id)
	_, err = r.CreateVolume(ctxOf(t), req)
	wantCode(t, "CreateVolume of a copy smaller than its source", err, codes.OutOfRange)
}

// C7: the first preferred place that can serve is used, else the first requisite one; the response has it.
func TestCreateVolumeChoosesThePlace(t *testing.T) {
	tests := map[string]struct {
		preferred, requisite []string
		want                 string
	}{
		"none asked for":                          {nil, nil, "zone-a"},
		"one requisite":                           {nil, []string{"zone-c"}, "zone-c"},
		"the first requisite":                     {nil, []string{"zone-b", "zone-c", "zone-a"}, "zone-b"},
		"the first preferred":                     {[]string{"zone-c", "zone-b"}, []string{"zone-a", "zone-b", "zone-c"}, "zone-c"},
		"the other order":                         {[]string{"zone-b", "zone-c"}, []string{"zone-c", "zone-b", "zone-a"}, "zone-b"},
		"only preferred":                          {[]string{"zone-b"}, nil, "zone-b"},
		"a preferred place that does not exist":   {[]string{"mars", "zone-b"}, []string{"zone-a", "mars", "zone-b"}, "zone-b"},
		"only preferred places that do not exist": {[]string{"mars"}, []string{"mars", "zone-c"}, "zone-c"},
		"a preferred place outside of requisite":  {[]string{"zone-a", "zone-c"}, []string{"zone-c", "zone-b"}, "zone-c"},
		"repetitions":                             {[]string{"zone-b", "zone-b"}, []string{"zone-b", "zone-b"}, "zone-b"},
	}
	r := start(t, memory.Config{Zones: []string{"zone-a", "zone-b", "zone-c"}})
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			req := request(name)
			req.AccessibilityRequirements = &csi.TopologyRequirement{
				Preferred: topology(tc.preferred...), Requisite: append(topology(tc.requisite...), &csi.Topology{Segments: map[string]string{"other/key": "x"}}),
			}
			if tc.requisite == nil {
				req.AccessibilityRequirements.Requisite = nil
			}
			answer, err := r.CreateVolume(ctxOf(t), req)
			must(t, err)
			got := answer.GetVolume().GetAccessibleTopology()
			if len(got) != 1 || !proto.Equal(got[0], topology(tc.want)[0]) {
				t.Errorf("the volume is in %v, want %s", got, tc.want)
			}
		})
	}
}

func TestDeleteVolume(t *testing.T) {
	r := start(t, memory.Config{})
	id := r.make(t, "v").GetVolumeId()
	for range 2 {
		if _, err := r.DeleteVolume(ctxOf(t), &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
			t.Errorf("DeleteVolume(%s): %v", id, err)
		}
	}
	if _, err := r.DeleteVolume(ctxOf(t), &csi.DeleteVolumeRequest{VolumeId: "no-id-of-this-cloud"}); err != nil {
		t.Errorf("DeleteVolume of an id that cannot exist: %v", err)
	}
	other := r.make(t, "other").GetVolumeId()
	for _, hostile := range []string{
		"", "../volumes/" + other, other + "?force=1", other + "#x", other + " ", " " + other, other + "/../" + other,
		"диск", strings.Repeat(other, 1500), other + "\x00",
	} {
		_, err := r.DeleteVolume(ctxOf(t), &csi.DeleteVolumeRequest{VolumeId: hostile})
		wantCode(t, "DeleteVolume("+hostile[:min(len(hostile), 40)]+")", err, codes.InvalidArgument, "volume_id")
	}
	if _, err := r.cloud.GetVolume(t.Context(), cloud.VolumeID(other)); err != nil {
		t.Errorf("a hostile id removed the volume: %v", err)
	}
	if _, err := r.cloud.Attach(t.Context(), cloud.VolumeID(other), "node-1"); err != nil {
		t.Fatal(err)
	}
	_, err := r.DeleteVolume(ctxOf(t), &csi.DeleteVolumeRequest{VolumeId: other})
	wantCode(t, "DeleteVolume of an attached volume", err, codes.FailedPrecondition)
}

func TestValidateVolumeCapabilities(t *testing.T) {
	r := start(t, memory.Config{})
	vol := r.make(t, "v")
	good := func() *csi.ValidateVolumeCapabilitiesRequest {
		return &csi.ValidateVolumeCapabilitiesRequest{
			VolumeId: vol.GetVolumeId(), VolumeContext: vol.GetVolumeContext(),
			VolumeCapabilities: []*csi.VolumeCapability{filesystem(), block()}, Parameters: map[string]string{"type": "fast"},
		}
	}
	answer, err := r.ValidateVolumeCapabilities(ctxOf(t), good())
	confirmed := answer.GetConfirmed()
	if err != nil || len(confirmed.GetVolumeCapabilities()) != 2 || confirmed.GetParameters()["type"] != "fast" || answer.GetMessage() != "" {
		t.Errorf("ValidateVolumeCapabilities = %v, %v, want it confirmed", answer, err)
	}
	for name, change := range map[string]func(*csi.ValidateVolumeCapabilitiesRequest){
		"a mode that is not supported": func(q *csi.ValidateVolumeCapabilitiesRequest) {
			q.VolumeCapabilities = []*csi.VolumeCapability{capability(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)}
		},
		"an unknown parameter": func(q *csi.ValidateVolumeCapabilitiesRequest) { q.Parameters = map[string]string{"x": ""} },
		"mutable parameters":   func(q *csi.ValidateVolumeCapabilitiesRequest) { q.MutableParameters = map[string]string{"x": ""} },
		"a context of another volume": func(q *csi.ValidateVolumeCapabilitiesRequest) {
			q.VolumeContext = r.names.EncodeVolumeContext(driver.VolumeContext{DeviceName: "x"})
		},
		"a context that makes no sense": func(q *csi.ValidateVolumeCapabilitiesRequest) {
			q.VolumeContext = r.names.EncodeVolumeContext(driver.VolumeContext{Size: -1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			req := good()
			change(req)
			answer, err := r.ValidateVolumeCapabilities(ctxOf(t), req)
			if err != nil || answer.GetConfirmed() != nil || answer.GetMessage() == "" {
				t.Errorf("ValidateVolumeCapabilities = %v, %v, want a message and no confirmation", answer, err)
			}
		})
	}
	for name, tc := range map[string]struct {
		change func(*csi.ValidateVolumeCapabilitiesRequest)
		code   codes.Code
	}{
		"no id":           {func(q *csi.ValidateVolumeCapabilitiesRequest) { q.VolumeId = "" }, codes.InvalidArgument},
		"no capabilities": {func(q *csi.ValidateVolumeCapabilitiesRequest) { q.VolumeCapabilities = nil }, codes.InvalidArgument},
		"no such volume":  {func(q *csi.ValidateVolumeCapabilitiesRequest) { q.VolumeId = "none" }, codes.NotFound},
	} {
		req := good()
		tc.change(req)
		_, err := r.ValidateVolumeCapabilities(ctxOf(t), req)
		wantCode(t, name, err, tc.code)
	}
}
