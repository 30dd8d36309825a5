package block

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// making is a cloud whose ids are single letters, and whose zones are too.
var making = &Verbs{traits: Traits{
	VolumeWord: "volume", Largest: cloud.TiB,
	VolumeID: func(id cloud.VolumeID) bool { return len(id) == 1 }, SnapshotID: func(id cloud.SnapshotID) bool { return len(id) == 1 },
	Zone: func(zone string) bool { return len(zone) == 1 },
}}

func TestWhatNoAccountCanCreate(t *testing.T) {
	for name, tc := range map[string]struct {
		edit  func(*cloud.CreateVolumeRequest)
		want  error
		zones []string
	}{
		"nothing is wrong":          {func(*cloud.CreateVolumeRequest) {}, nil, []string{"o"}},
		"zones":                     {func(r *cloud.CreateVolumeRequest) { r.Zones = []string{"b", "a"} }, nil, []string{"b", "a"}},
		"some zones are none":       {func(r *cloud.CreateVolumeRequest) { r.Zones = []string{"b", "../x", "a"} }, nil, []string{"b", "a"}},
		"all zones are none":        {func(r *cloud.CreateVolumeRequest) { r.Zones = []string{"../x"} }, fault.NoZone, nil},
		"no name":                   {func(r *cloud.CreateVolumeRequest) { r.Name = "" }, fault.InvalidArgument, nil},
		"the largest":               {func(r *cloud.CreateVolumeRequest) { r.Size = cloud.TiB }, nil, []string{"o"}},
		"larger than the largest":   {func(r *cloud.CreateVolumeRequest) { r.Size = cloud.TiB + 1 }, fault.OutOfRange, nil},
		"a source":                  {func(r *cloud.CreateVolumeRequest) { r.Source.Volume = "v" }, nil, []string{"o"}},
		"a source that is none":     {func(r *cloud.CreateVolumeRequest) { r.Source.Volume = "../v" }, fault.NotFound, nil},
		"a snapshot":                {func(r *cloud.CreateVolumeRequest) { r.Source.Snapshot = "s" }, nil, []string{"o"}},
		"a snapshot that is none":   {func(r *cloud.CreateVolumeRequest) { r.Source.Snapshot = "../s" }, fault.NotFound, nil},
		"no zone, and a wrong size": {func(r *cloud.CreateVolumeRequest) { r.Zones, r.Size = []string{"../x"}, 2*cloud.TiB }, fault.OutOfRange, nil},
	} {
		t.Run(name, func(t *testing.T) {
			req := cloud.CreateVolumeRequest{Name: "a", Size: cloud.GiB}
			tc.edit(&req)
			zones, err := making.CheckCreate(req, cloud.Capabilities{Snapshots: true, Clones: true}, "o")
			if fault.Of(err) != fault.Of(tc.want) || !slices.Equal(zones, tc.zones) {
				t.Errorf("CheckCreate = %q, %v, want %q, %v", zones, err, tc.zones, tc.want)
			}
		})
	}
}

// C4: a source that is ignored would make an empty volume.
func TestASourceThatTheCloudCannotCopy(t *testing.T) {
	for says, source := range map[string]cloud.Source{`snapshot "s"`: {Snapshot: "s"}, `volume "v"`: {Volume: "v"}} {
		_, err := making.CheckCreate(cloud.CreateVolumeRequest{Name: "a", Source: source}, cloud.Capabilities{}, "o")
		if fault.Of(err) != fault.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("CheckCreate from %s = %v, want fault.InvalidArgument", says, err)
		}
	}
}

// C7: the first zone that can serve is taken, and another one only where a zone could not have served.
func TestTheFirstZoneThatCanServe(t *testing.T) {
	full := fmt.Errorf("it is full: %w", fault.NoZone)
	for name, tc := range map[string]struct {
		answers map[string]error
		want    string
		kind    error
		tried   int
	}{
		"the first":          {nil, "a", nil, 1},
		"the second":         {map[string]error{"a": full}, "b", nil, 2},
		"none":               {map[string]error{"a": full, "b": full}, "", fault.NoZone, 2},
		"a refusal is final": {map[string]error{"a": fault.InvalidArgument}, "", fault.InvalidArgument, 1},
		"a quota is final":   {map[string]error{"a": fault.Exhausted}, "", fault.Exhausted, 1},
		"doubt is final":     {map[string]error{"a": full, "b": fault.Uncertain}, "", fault.Uncertain, 2},
	} {
		t.Run(name, func(t *testing.T) {
			tried := 0
			got, err := InZones([]string{"a", "b"}, func(zone string) (string, error) {
				tried++
				if tc.answers[zone] != nil {
					return "", tc.answers[zone]
				}
				return zone, nil
			})
			if got != tc.want || fault.Of(err) != fault.Of(tc.kind) || fault.ReasonOf(err) != fault.ReasonOf(tc.kind) || tried != tc.tried {
				t.Errorf("InZones = %q, %v after %d requests, want %q, %v after %d", got, err, tried, tc.want, tc.kind, tc.tried)
			}
		})
	}
}

// C1, C12: a name is not enough to find what a request has made.
func TestWhatHasTheNameOfARequest(t *testing.T) {
	ours := func(id string) bool { return id == "ours" }
	called := func(id string) string { return "volume " + id }
	for name, tc := range map[string]struct {
		same []string
		want string
		kind error
	}{
		"there is none":       {nil, "", fault.NotFound},
		"it is ours":          {[]string{"ours"}, "ours", nil},
		"another has it":      {[]string{"theirs"}, "", fault.Conflict},
		"another has it, too": {[]string{"theirs", "ours"}, "ours", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Find("a", tc.same, ours, called); got != tc.want || fault.Of(err) != fault.Of(tc.kind) {
				t.Errorf("Find = %q, %v, want %q, %v", got, err, tc.want, tc.kind)
			}
		})
	}
}
