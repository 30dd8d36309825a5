package controller

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/compat"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// classes returns a service whose cloud has these parameters.
func classes(vendor *compat.Vendor, backend ...string) *Service {
	return &Service{names: driver.Names{Vendor: vendor}, caps: cloud.Capabilities{Parameters: backend}}
}

// parsed are the parameters of a class, and what the driver has to make of them.
type parsed struct {
	raw  map[string]string
	want volumeParameters
	says string // not empty: refused
}

func wantParameters(t *testing.T, service *Service, tests map[string]parsed) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := service.parseVolumeParameters(tc.raw)
			if tc.says == "" && (err != nil || !reflect.DeepEqual(got, tc.want)) {
				t.Errorf("parseVolumeParameters(%v) = %+v, %v, want %+v", tc.raw, got, err, tc.want)
			}
			if tc.says != "" && (!errors.Is(err, fault.InvalidArgument) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("parseVolumeParameters(%v): error %v, want one that says %q", tc.raw, err, tc.says)
			}
		})
	}
}

func TestParseVolumeParameters(t *testing.T) {
	wantParameters(t, classes(nil, "tier", "encrypted"), map[string]parsed{
		"none": {nil, volumeParameters{}, ""},
		"all of ours": {
			map[string]string{
				"mkfsOptions": "-i 8192", "formatNonZero": "true", "tags": "a=1, b=2=3,c=", "csi.storage.k8s.io/fstype": "xfs",
				"csi.storage.k8s.io/pvc/name": "data",
			},
			volumeParameters{
				mkfsOptions: []string{"-i", "8192"}, formatNonZero: true, filesystem: "xfs",
				tags: []cloud.Tag{{Key: "cloudblock-pvc", Value: "data"}, {Key: "a", Value: "1"}, {Key: "b", Value: "2=3"}, {Key: "c"}},
			}, "",
		},
		"the backend's own, sorted": {
			map[string]string{"tier": "fast", "encrypted": "true"},
			volumeParameters{backend: []cloud.Parameter{{Name: "encrypted", Value: "true"}, {Name: "tier", Value: "fast"}}}, "",
		},
		"formatNonZero false":           {map[string]string{"formatNonZero": "false"}, volumeParameters{}, ""},
		"formatNonZero yes":             {map[string]string{"formatNonZero": "yes"}, volumeParameters{}, "formatNonZero: neither true nor false"},
		"formatNonZero in capitals":     {map[string]string{"formatNonZero": "True"}, volumeParameters{}, "formatNonZero: neither true nor false"},
		"a filesystem we do not make":   {map[string]string{"csi.storage.k8s.io/fstype": "zfs"}, volumeParameters{}, "ext4 and xfs"},
		"btrfs":                         {map[string]string{"csi.storage.k8s.io/fstype": "btrfs"}, volumeParameters{}, "a volume and its clone"},
		"bad mkfs options":              {map[string]string{"mkfsOptions": "-L 'x'"}, volumeParameters{}, "mkfsOptions"},
		"a tag without a value sign":    {map[string]string{"tags": "a=1,b"}, volumeParameters{}, "tags: entry 2"},
		"a tag without a key":           {map[string]string{"tags": "=1"}, volumeParameters{}, "tags: entry 1"},
		"no tag in the tags":            {map[string]string{"tags": ""}, volumeParameters{}, "tags: entry 1"},
		"a tag twice":                   {map[string]string{"tags": "a=1,a=2"}, volumeParameters{}, "repeats"},
		"a tag of our own":              {map[string]string{"tags": "cloudblock-cluster=x"}, volumeParameters{}, "this driver's own"},
		"a tag of our own, in capitals": {map[string]string{"tags": "Cloudblock-Temporary=clone"}, volumeParameters{}, "this driver's own"},
		"a tag with a newline":          {map[string]string{"tags": "a=1\nb"}, volumeParameters{}, "printable"},
		"luks":                          {map[string]string{"luks": "true"}, volumeParameters{luks: true}, ""},
		"no luks":                       {map[string]string{"luks": "false"}, volumeParameters{}, ""},
		"luks yes":                      {map[string]string{"luks": "yes"}, volumeParameters{}, "luks: neither true nor false"},
		"an unknown one":                {map[string]string{"shred": "true"}, volumeParameters{}, `unknown "shred"; known are bandwidth, csi.storage.k8s.io/fstype, csi.storage.k8s.io/pv/name, csi.storage.k8s.io/pvc/name, csi.storage.k8s.io/pvc/namespace, encrypted, formatNonZero, iops, luks, mkfsOptions, readBandwidth, readIops, tags, tier, writeBandwidth, writeIops`},
		"a long unknown name":           {map[string]string{strings.Repeat("x", 2000): ""}, volumeParameters{}, `xxx..."; known`},
		"a vendor's own, elsewhere":     {map[string]string{"fstype": "xfs"}, volumeParameters{}, `unknown "fstype"`},
		"another case":                  {map[string]string{"MkfsOptions": "-F"}, volumeParameters{}, "unknown"},
	})
}

// A parameter that a class leaves out has the backend's default.
func TestDefaultsOfParameters(t *testing.T) {
	service := classes(nil, "pool", "tier")
	service.caps.Defaults = []cloud.Parameter{{Name: "pool", Value: "usual"}}
	for name, tc := range map[string]struct {
		raw  map[string]string
		want []cloud.Parameter
	}{
		"left out":            {nil, []cloud.Parameter{{Name: "pool", Value: "usual"}}},
		"given":               {map[string]string{"pool": "fast"}, []cloud.Parameter{{Name: "pool", Value: "fast"}}},
		"next to another one": {map[string]string{"tier": "a"}, []cloud.Parameter{{Name: "pool", Value: "usual"}, {Name: "tier", Value: "a"}}},
	} {
		if got, err := service.parseVolumeParameters(tc.raw); err != nil || !reflect.DeepEqual(got.backend, tc.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got.backend, err, tc.want)
		}
	}
}

// Parameters of a vendor's driver, with the name of that driver.
func TestParseAVendorsParameters(t *testing.T) {
	wantParameters(t, classes(compat.Of("dobs.csi.digitalocean.com")), map[string]parsed{
		"its own":            {map[string]string{"fstype": "xfs"}, volumeParameters{filesystem: "xfs"}, ""},
		"as many write it":   {map[string]string{"fsType": "ext4"}, volumeParameters{filesystem: "ext4"}, ""},
		"ours":               {map[string]string{"csi.storage.k8s.io/fstype": "xfs", "mkfsOptions": "-f"}, volumeParameters{filesystem: "xfs", mkfsOptions: []string{"-f"}}, ""},
		"a bad value":        {map[string]string{"fstype": "zfs"}, volumeParameters{}, "fstype: supported are"},
		"both, even if same": {map[string]string{"fstype": "xfs", "csi.storage.k8s.io/fstype": "xfs"}, volumeParameters{}, "csi.storage.k8s.io/fstype and fstype mean the same"},
		"unknown":            {map[string]string{"region": "fra1"}, volumeParameters{}, `unknown "region"; known are bandwidth, csi.storage.k8s.io/fstype, csi.storage.k8s.io/pv/name, csi.storage.k8s.io/pvc/name, csi.storage.k8s.io/pvc/namespace, formatNonZero, fsType, fstype, iops, luks, mkfsOptions, readBandwidth, readIops, tags, writeBandwidth, writeIops`},
	})
}

// Parameters of Linode's driver, which begin with its name.
func TestParseLinodesParameters(t *testing.T) {
	const own = "linodebs.csi.linode.com/"
	wantParameters(t, classes(compat.Of("linodebs.csi.linode.com"), "encrypted", "aaa"), map[string]parsed{
		"its tags, as its examples write them": {
			map[string]string{own + "volumeTags": "foo, bar,env:prod:eu,a=b"},
			volumeParameters{tags: []cloud.Tag{{Key: "foo"}, {Key: "bar"}, {Key: "env", Value: "prod:eu"}, {Key: "a=b"}}}, "",
		},
		"its tags and ours": {
			map[string]string{own + "volumeTags": "foo", "tags": "a=b"},
			volumeParameters{tags: []cloud.Tag{{Key: "foo"}, {Key: "a", Value: "b"}}}, "",
		},
		"its encryption at rest": {
			map[string]string{own + "encrypted": "true", "aaa": "1"},
			volumeParameters{backend: []cloud.Parameter{{Name: "aaa", Value: "1"}, {Name: "encrypted", Value: "true"}}}, "",
		},
		"its filesystem":     {map[string]string{"fstype": "xfs"}, volumeParameters{filesystem: "xfs"}, ""},
		"both, even if same": {map[string]string{own + "encrypted": "true", "encrypted": "true"}, volumeParameters{}, "mean the same"},
		"without LUKS":       {map[string]string{own + "luks-encrypted": "false", own + "luks-cipher": "aes-xts-plain64", own + "luks-key-size": "512"}, volumeParameters{}, ""},
		"with LUKS":          {map[string]string{own + "luks-encrypted": "true", own + "luks-cipher": "aes-xts-plain64", own + "luks-key-size": "512"}, volumeParameters{luks: true}, ""},
		"another cipher":     {map[string]string{own + "luks-encrypted": "true", own + "luks-cipher": "serpent-xts-plain64"}, volumeParameters{}, "luks-cipher: this driver encrypts with aes-xts-plain64 only"},
		"another key size":   {map[string]string{own + "luks-encrypted": "true", own + "luks-key-size": "256"}, volumeParameters{}, "luks-key-size: this driver encrypts with 512 only"},
		"LUKS in capitals":   {map[string]string{own + "luks-encrypted": "TRUE"}, volumeParameters{}, "luks-encrypted: neither true nor false"},
		"its LUKS and ours":  {map[string]string{own + "luks-encrypted": "true", "luks": "true"}, volumeParameters{}, "mean the same"},
		"an empty tag":       {map[string]string{own + "volumeTags": "foo,"}, volumeParameters{}, "entry 2"},
		"a tag of our own":   {map[string]string{own + "volumeTags": "cloudblock-cluster:x"}, volumeParameters{}, "this driver's own"},
		"a tag with a tab":   {map[string]string{own + "volumeTags": "a\tb"}, volumeParameters{}, "printable"},
		"unknown":            {map[string]string{own + "volumeTag": "foo"}, volumeParameters{}, own + "volumeTags"},
		"what tags mean":     {map[string]string{profile.TagWords: "foo"}, volumeParameters{}, "unknown"},
	})
}

// With the name of a driver whose handles are more than the id, this driver returns the same handles: the list of volumes is
// compared with the PersistentVolumes, and the other driver's program parses their handles.
func TestHandlesOfAVendor(t *testing.T) {
	for name, want := range map[string]string{"linodebs.csi.linode.com": "7-pvc-1", "dobs.csi.digitalocean.com": "7", "": "7"} {
		if got := classes(compat.Of(name)).volume(cloud.Volume{ID: "7", Name: "pvc-1"}).GetVolumeId(); got != want {
			t.Errorf("under the name %q a volume's handle is %s, want %s", name, got, want)
		}
	}
}

func TestMergeTags(t *testing.T) {
	wide := []cloud.Tag{{Key: "a", Value: "1"}, {Key: "b", Value: "1"}}
	got := mergeTags(wide, []cloud.Tag{{Key: "b", Value: "2"}})
	want := []cloud.Tag{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}
	if !reflect.DeepEqual(got, want) || wide[1].Value != "1" {
		t.Errorf("mergeTags = %v (and %v), want %v", got, wide, want)
	}
}

func FuzzVolumeParameters(f *testing.F) {
	f.Add("tags", "a=b", "mkfsOptions", "-F")
	f.Add("iops", "100", "readIops", "-1")
	f.Add("bandwidth", "100Mi", "writeBandwidth", "9223372036854775807Ti")
	f.Add("luks", "canary", "csi.storage.k8s.io/fstype", "xfs")
	service := classes(nil, "tier")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		raw := map[string]string{k1: v1, k2: v2}
		p, err := service.parseVolumeParameters(raw)
		if err != nil {
			if !errors.Is(err, fault.InvalidArgument) {
				t.Fatalf("parseVolumeParameters(%q): error %v has a wrong kind", raw, err)
			}
			return
		}
		for _, tag := range p.tags {
			if tag.Key == "" {
				t.Errorf("parseVolumeParameters(%q) has a tag without a key", raw)
			}
		}
		for name, value := range map[string]int64{"iops": p.limits.ReadIOPS, "bandwidth": p.limits.WriteBandwidth} {
			if _, given := raw[name]; given && value < driver.MinIOPS {
				t.Errorf("parseVolumeParameters(%q) ignores %s", raw, name)
			}
		}
		for _, b := range p.backend {
			if b.Name != "tier" {
				t.Errorf("parseVolumeParameters(%q) hands %q to the backend", raw, b.Name)
			}
		}
	})
}

// TestParametersAreAsFrozen: classes that people have written have these. The parameters of one cloud are frozen in its package.
func TestParametersAreAsFrozen(t *testing.T) {
	names := []string{paramMkfsOptions, paramFormatNonZero, paramLUKS, paramTags, paramFilesystem}
	names = slices.Concat(names, limitNames(), slices.Collect(maps.Keys(volumeMetadata)), slices.Collect(maps.Keys(snapshotMetadata)))
	golden.Names(t, "parameters.txt", names)
}
