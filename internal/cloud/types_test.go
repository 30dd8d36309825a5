package cloud_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestBytesString(t *testing.T) {
	tests := map[cloud.Bytes]string{
		0:                      "0 bytes",
		1:                      "1 bytes",
		-3 * cloud.GiB:         "-3 GiB",
		cloud.KiB + 1:          "1025 bytes",
		512 * cloud.KiB:        "512 KiB",
		1536 * cloud.KiB:       "1536 KiB",
		20 * cloud.GiB:         "20 GiB",
		1024 * cloud.GiB:       "1 TiB",
		cloud.Bytes(1<<62 - 1): "4611686018427387903 bytes",
		math.MaxInt64:          "9223372036854775807 bytes",
	}
	for size, want := range tests {
		if got := size.String(); got != want {
			t.Errorf("Bytes(%d).String() = %q, want %q", int64(size), got, want)
		}
	}
}

func TestFitsExisting(t *testing.T) {
	const ten = 10 * cloud.GiB
	fast := []cloud.Parameter{{Name: "type", Value: "fast"}}
	tests := map[string]struct {
		req            cloud.CreateVolumeRequest
		vol            cloud.Volume
		fits, butForIt bool
	}{
		"the same size fits":                   {cloud.CreateVolumeRequest{Size: ten}, cloud.Volume{Size: ten}, true, true},
		"a larger volume without limit fits":   {cloud.CreateVolumeRequest{Size: ten}, cloud.Volume{Size: ten + 1}, true, true},
		"a larger volume at the limit fits":    {cloud.CreateVolumeRequest{Size: ten, Limit: ten + 1}, cloud.Volume{Size: ten + 1}, true, true},
		"a volume above the limit does not":    {cloud.CreateVolumeRequest{Size: ten, Limit: ten}, cloud.Volume{Size: ten + 1}, false, true},
		"a smaller volume fits but for size":   {cloud.CreateVolumeRequest{Size: ten}, cloud.Volume{Size: ten - 1}, false, true},
		"a copy does not fit a blank request":  {cloud.CreateVolumeRequest{Size: ten}, cloud.Volume{Size: ten, Source: cloud.Source{Volume: "v"}}, false, false},
		"a blank volume does not fit a copy":   {cloud.CreateVolumeRequest{Size: ten, Source: cloud.Source{Snapshot: "s"}}, cloud.Volume{Size: ten}, false, false},
		"another source does not fit":          {cloud.CreateVolumeRequest{Size: ten, Source: cloud.Source{Snapshot: "s"}}, cloud.Volume{Size: ten, Source: cloud.Source{Volume: "s"}}, false, false},
		"any zone fits a request without":      {cloud.CreateVolumeRequest{Size: ten}, cloud.Volume{Size: ten, Zone: "z"}, true, true},
		"a zone that is not first choice fits": {cloud.CreateVolumeRequest{Size: ten, Zones: []string{"y", "z"}}, cloud.Volume{Size: ten, Zone: "z"}, true, true},
		"a zone that is not listed does not":   {cloud.CreateVolumeRequest{Size: ten, Zones: []string{"y"}}, cloud.Volume{Size: ten, Zone: "z"}, false, false},
		"the same parameters fit":              {cloud.CreateVolumeRequest{Size: ten, Parameters: fast}, cloud.Volume{Size: ten, Parameters: fast}, true, true},
		"other parameters do not":              {cloud.CreateVolumeRequest{Size: ten}, cloud.Volume{Size: ten, Parameters: fast}, false, false},
		"tags and attachments do not matter":   {cloud.CreateVolumeRequest{Size: ten, Tags: []cloud.Tag{{Key: "a", Value: "b"}}}, cloud.Volume{Size: ten, AttachedTo: []cloud.NodeID{"n"}}, true, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.req.FitsExisting(tc.vol); got != tc.fits {
				t.Errorf("FitsExisting = %v, want %v", got, tc.fits)
			}
			if got := tc.req.FitsButForSize(tc.vol); got != tc.butForIt {
				t.Errorf("FitsButForSize = %v, want %v", got, tc.butForIt)
			}
		})
	}
}

func TestNoSnapshotsAnswersUnsupported(t *testing.T) {
	var s cloud.NoSnapshots
	ctx := t.Context()
	_, create := s.CreateSnapshots(ctx, cloud.CreateSnapshotsRequest{})
	_, find := s.FindSnapshots(ctx, "")
	_, get := s.GetSnapshot(ctx, "")
	_, list := s.ListSnapshots(ctx, "", cloud.Page{})
	for call, err := range map[string]error{
		"CreateSnapshots": create, "FindSnapshots": find, "GetSnapshot": get,
		"ListSnapshots": list, "DeleteSnapshot": s.DeleteSnapshot(ctx, ""),
	} {
		if !errors.Is(err, fault.Unsupported) {
			t.Errorf("%s = %v, want %v", call, err, fault.Unsupported)
		}
	}
}

func TestInOrder(t *testing.T) {
	group := func(ids ...string) []cloud.Snapshot {
		var list []cloud.Snapshot
		for _, id := range ids {
			list = append(list, cloud.Snapshot{ID: cloud.SnapshotID("s" + id), Volume: cloud.VolumeID(id), Group: "g"})
		}
		return list
	}
	single := []cloud.Snapshot{{ID: "sa", Volume: "a"}}
	tests := map[string]struct {
		volumes []cloud.VolumeID
		group   bool
		found   []cloud.Snapshot
		want    []cloud.Snapshot
	}{
		"the order is the request's":                      {[]cloud.VolumeID{"b", "a"}, true, group("a", "b"), group("b", "a")},
		"one that is missing":                             {[]cloud.VolumeID{"a", "b"}, true, group("a"), nil},
		"one too many":                                    {[]cloud.VolumeID{"a"}, true, group("a", "b"), nil},
		"another volume":                                  {[]cloud.VolumeID{"a", "b"}, true, group("a", "c"), nil},
		"a single snapshot":                               {[]cloud.VolumeID{"a"}, false, single, single},
		"a single snapshot is not a group of one":         {[]cloud.VolumeID{"a"}, true, single, nil},
		"a group of one is not a single snapshot":         {[]cloud.VolumeID{"a"}, false, group("a"), nil},
		"the same volume twice does not stand for others": {[]cloud.VolumeID{"a", "b"}, true, group("a", "a"), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := cloud.CreateSnapshotsRequest{Volumes: tc.volumes, Group: tc.group}.InOrder(tc.found)
			if ok != (tc.want != nil) || !slices.Equal(got, tc.want) {
				t.Errorf("InOrder = %+v, %v, want %+v", got, ok, tc.want)
			}
		})
	}
}
