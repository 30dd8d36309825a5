package compat_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/compat"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// The publish contexts of each vendor's driver for one disk: its node program reads those of this driver, and this driver reads
// those of its controller.
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
		"Yandex Cloud": {
			"yandex.csi.flant.com", "virtio-csi-786459023", map[string]string{"yandex.csi.flant.com/volume-name": "csi-786459023"},
		},
		"Linode": {
			"linodebs.csi.linode.com", "scsi-0Linode_Volume_pvc-1", map[string]string{"devicePath": "/dev/disk/by-id/scsi-0Linode_Volume_pvc-1"},
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

// Without a vendor every method returns what it got, or nothing.
func TestNoVendor(t *testing.T) {
	v := compat.Of("local.csi.cloudblock.io")
	if v != nil || compat.Of("") != nil {
		t.Fatalf("Of = %+v, want none", v)
	}
	anything := map[string]string{"dobs.csi.digitalocean.com/noformat": "", "dobs.csi.digitalocean.com/volume-name": "x"}
	if v.Link("volume", anything) != "" || v.Tell("scsi-0DO_Volume_x") != nil || v.Forbids(anything) != "" ||
		v.Refuses(anything) != "" || v.Handle("7", "pvc-1") != "7" || v.Parameter("fstype") != "fstype" || v.ParameterNames() != nil {
		t.Error("no vendor has left something behind")
	}
}

// TestVendorsAreComplete: each vendor of a profile has its functions here.
func TestVendorsAreComplete(t *testing.T) {
	key := regexp.MustCompile(`^[a-z0-9./-]+=(region|zone)$`)
	var names []string
	for _, name := range profile.Names() {
		c, _ := profile.Of(name)
		for _, v := range c.Vendors {
			names = append(names, v.Driver)
		}
	}
	if len(names) < 4 {
		t.Fatalf("the profiles have only the vendors %v", names)
	}
	for _, name := range names {
		v := compat.Of(name)
		if v == nil {
			t.Errorf("%s is in a profile, and has no form in compat", name)
			continue
		}
		if luks := v.LUKSAttributes(); v.LUKS(nil) || v.LUKS(luks) != (luks != nil) {
			t.Errorf("%s: a volume without attributes is encrypted: %v; one with %v: %v", name, v.LUKS(nil), luks, v.LUKS(luks))
		}
		if v.Cloud == "" || len(v.TopologyKeys) == 0 || slices.ContainsFunc(v.TopologyKeys, func(k string) bool { return !key.MatchString(k) }) {
			t.Errorf("Of(%s) = %+v, want a cloud and topology keys with scopes", name, v)
		}
		// The provisioner passes these on for every driver.
		for _, parameter := range []string{"fstype", "fsType"} {
			if ours := v.Parameter(parameter); ours != "csi.storage.k8s.io/fstype" {
				t.Errorf("%s of %s means %s, want the filesystem", parameter, name, ours)
			}
		}
		for _, parameter := range v.ParameterNames() {
			if ours := v.Parameter(parameter); ours == parameter || v.Parameter(ours) != ours {
				t.Errorf("%s of %s means %s, want another name that means itself", parameter, name, ours)
			}
		}
	}
}

func TestHandles(t *testing.T) {
	tests := map[string]struct{ cloud, driver, id, name, want string }{
		"DigitalOcean's is the id":   {"digitalocean", "dobs.csi.digitalocean.com", "506f78a4-e098-11e5-ad9f-000f53306ae1", "pvc-1", "506f78a4-e098-11e5-ad9f-000f53306ae1"},
		"Linode's has the label":     {"linode", "linodebs.csi.linode.com", "123456", "pvc-0123456789abcdef", "123456-pvc-0123456789abcdef"},
		"Linode's, without a label":  {"linode", "linodebs.csi.linode.com", "123456", "", "123456"},
		"ours is as the cloud gives": {"linode", "linode.csi.cloudblock.io", "123456", "pvc-1", "123456"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := compat.Of(tc.driver).Handle(tc.id, tc.name); got != tc.want {
				t.Errorf("Handle(%s, %s) = %s, want %s", tc.id, tc.name, got, tc.want)
			}
			if got := compat.ID(tc.cloud, tc.want); got != tc.id {
				t.Errorf("ID(%s) = %s, want %s", tc.want, got, tc.id)
			}
		})
	}
}

// What is not a handle of Linode's driver stays as it is, and is then the id of no volume.
func TestOddHandles(t *testing.T) {
	for handle, want := range map[string]string{"45-": "45", "45-renamed_By-hand": "45"} {
		if got := compat.ID("linode", handle); got != want {
			t.Errorf("ID(%q) = %q, want %q", handle, got, want)
		}
	}
	for _, handle := range []string{
		"", "-", "-pvc", "pvc-1", "0-pvc", "045-pvc", "+45-pvc", " 45-pvc", "45-../../volumes/1", "45/attach-a", "45-a\n", "45?x-a",
		"45-" + strings.Repeat("a", 33), strings.Repeat("9", 19) + "-a",
	} {
		if got := compat.ID("linode", handle); got != handle {
			t.Errorf("ID(%q) = %q, want it unchanged", handle, got)
		}
	}
}

// Linode's driver may have written a link as the path of a device. No other path becomes one.
func TestLinodesDevicePath(t *testing.T) {
	v := compat.Of("linodebs.csi.linode.com")
	for path, want := range map[string]string{
		"/dev/disk/by-id/scsi-0Linode_Volume_a":    "scsi-0Linode_Volume_a",
		"/dev/disk/by-id/linode-a":                 "linode-a",
		"/dev//disk/by-id/./scsi-0Linode_Volume_a": "scsi-0Linode_Volume_a",
		"/dev/sda":                  "/dev/sda",
		"/dev/disk/by-id/../../sda": "/dev/disk/by-id/../../sda",
		"/dev/disk/by-id/sub/scsi-0Linode_Volume_a": "sub/scsi-0Linode_Volume_a",
		"dev/disk/by-id/scsi-0Linode_Volume_a":      "dev/disk/by-id/scsi-0Linode_Volume_a",
		"scsi-0Linode_Volume_a":                     "scsi-0Linode_Volume_a",
		"":                                          "",
	} {
		if got := v.Link("7-a", map[string]string{"devicePath": path}); got != want {
			t.Errorf("Link(%q) = %q, want %q", path, got, want)
		}
	}
}

// Attributes and parameters with which this driver would do something else than the vendor's.
func TestLinodeRefuses(t *testing.T) {
	const luks = "linodebs.csi.linode.com/luks-encrypted"
	tests := map[string]struct {
		said map[string]string
		says string // empty: it is served
	}{
		"nothing special":        {map[string]string{"topology.linode.com/region": "us-ord"}, ""},
		"LUKS":                   {map[string]string{luks: "true"}, ""},
		"LUKS, in capitals":      {map[string]string{luks: "TRUE"}, "neither true nor false"},
		"no LUKS":                {map[string]string{luks: "false", "linodebs.csi.linode.com/luks-cipher": "aes-xts-plain64"}, ""},
		"LUKS that says nothing": {map[string]string{luks: ""}, ""},
		"a partition":            {map[string]string{"partition": "1"}, "whole volumes"},
		"no partition":           {map[string]string{"partition": ""}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := compat.Of("linodebs.csi.linode.com").Refuses(tc.said)
			if (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
				t.Errorf("Refuses(%v) = %q, want it to say %q", tc.said, got, tc.says)
			}
			if other := compat.Of("dobs.csi.digitalocean.com").Refuses(tc.said); other != "" {
				t.Errorf("another vendor's refuses it too: %s", other)
			}
		})
	}
}

// Yandex's driver attaches a disk with a hash of its id as the device name. It has made these names.
func TestYandexDeviceNames(t *testing.T) {
	v := compat.Of("yandex.csi.flant.com")
	told := map[string]string{"yandex.csi.flant.com/volume-name": "pvc-1"}
	for id, want := range map[string]string{"epd3ngm5h9o0abc953qj": "virtio-csi-25174384", "fhm4aq4hvq5g00000000": "virtio-csi-1328705469"} {
		if got := v.Link(id, told); got != want {
			t.Errorf("Link(%s) = %s, want %s", id, got, want)
		}
	}
	if got := v.Tell("virtio-fhm4aq4hvq5g00000000"); got != nil {
		t.Errorf("Tell of a disk that its node program would not find = %v", got)
	}
}
