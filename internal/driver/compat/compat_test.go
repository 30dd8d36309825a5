package compat_test

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/compat"
)

// What each vendor's driver wrote about one disk: its node program reads what we tell, and we read what
// its controller told.
func TestEachSideReadsTheOther(t *testing.T) {
	tests := map[string]struct {
		driver, link string
		told         map[string]string
	}{
		"DigitalOcean": {
			"dobs.csi.digitalocean.com", "scsi-0DO_Volume_pvc-1", map[string]string{"dobs.csi.digitalocean.com/volume-name": "pvc-1"},
		},
		"DigitalOcean of old": {
			"com.digitalocean.csi.dobs", "scsi-0DO_Volume_pvc-1", map[string]string{"com.digitalocean.csi.dobs/volume-name": "pvc-1"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := compat.Of(tc.driver)
			if v == nil || v.Driver != tc.driver {
				t.Fatalf("Of(%s) = %+v, want that vendor", tc.driver, v)
			}
			if got := v.Tell(tc.link); !maps.Equal(got, tc.told) {
				t.Errorf("Tell(%s) = %v, want %v", tc.link, got, tc.told)
			}
			if got := v.Link("volume", tc.told); got != tc.link {
				t.Errorf("Link(%v) = %q, want %q", tc.told, got, tc.link)
			}
			if got := v.Tell("some-other-disk"); len(got) > 0 {
				t.Errorf("Tell of a disk that is no volume = %v, want nothing", got)
			}
			if got := v.Link("volume", nil); got != "" {
				t.Errorf("Link of nothing = %q, want nothing", got)
			}
		})
	}
}

// Where there is no vendor everything is as if nobody had ever asked.
func TestNoVendor(t *testing.T) {
	v := compat.Of("local.csi.cloudblock.io")
	if v != nil || compat.Of("") != nil {
		t.Fatalf("Of = %+v, want none", v)
	}
	anything := map[string]string{"dobs.csi.digitalocean.com/noformat": "", "dobs.csi.digitalocean.com/volume-name": "x"}
	if v.Link("volume", anything) != "" || v.Tell("scsi-0DO_Volume_x") != nil || v.Forbids(anything) != "" ||
		v.Parameter("fstype") != "fstype" || v.ParameterNames() != nil {
		t.Error("no vendor has left something behind")
	}
}

func TestVendorsAreComplete(t *testing.T) {
	key := regexp.MustCompile(`^[a-z0-9./-]+=(region|zone)$`)
	for _, name := range []string{"dobs.csi.digitalocean.com", "com.digitalocean.csi.dobs"} {
		v := compat.Of(name)
		if v.Cloud == "" || len(v.TopologyKeys) == 0 || slices.ContainsFunc(v.TopologyKeys, func(k string) bool { return !key.MatchString(k) }) {
			t.Errorf("Of(%s) = %+v, want a cloud and topology keys with scopes", name, v)
		}
		for _, parameter := range v.ParameterNames() {
			if ours := v.Parameter(parameter); ours == parameter || v.Parameter(ours) != ours {
				t.Errorf("%s of %s means %s, want another name that means itself", parameter, name, ours)
			}
		}
	}
}
