package cloud_test

import (
	"math"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
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
	slow := []cloud.Parameter{{Name: "type", Value: "slow"}}
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
		"another value does not":               {cloud.CreateVolumeRequest{Size: ten, Parameters: slow}, cloud.Volume{Size: ten, Parameters: fast}, false, false},
		"a value that is not shown does not":   {cloud.CreateVolumeRequest{Size: ten, Parameters: fast}, cloud.Volume{Size: ten}, false, false},
		"what the cloud chose does":            {cloud.CreateVolumeRequest{Size: ten}, cloud.Volume{Size: ten, Parameters: fast}, true, true},
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
