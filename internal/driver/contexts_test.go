package driver_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

const prefix = "local.csi.cloudblock.io/"

func TestVolumeContext(t *testing.T) {
	tests := map[string]struct {
		fields driver.VolumeContext
		keys   map[string]string
	}{
		"nothing known is an empty map": {driver.VolumeContext{}, map[string]string{}},
		"everything known": {
			driver.VolumeContext{
				DeviceName: "0a1b.img", Serial: "s-1", Size: 1 << 30, Content: driver.ContentBlank,
				MkfsOptions: []string{"-E", "lazy_itable_init=0"}, FormatNonZero: true,
				Limits: driver.IOLimits{ReadIOPS: 10, WriteIOPS: 4294967290, ReadBandwidth: 1 << 20, WriteBandwidth: 1 << 62},
			},
			map[string]string{
				prefix + "device-name": "0a1b.img", prefix + "serial": "s-1", prefix + "size": "1073741824",
				prefix + "content": "blank", prefix + "mkfs-options": "-E lazy_itable_init=0", prefix + "format-non-zero": "true",
				prefix + "read-iops": "10", prefix + "write-iops": "4294967290",
				prefix + "read-bandwidth": "1048576", prefix + "write-bandwidth": "4611686018427387904",
			},
		},
		"one limit": {driver.VolumeContext{Limits: driver.IOLimits{WriteIOPS: 500}}, map[string]string{prefix + "write-iops": "500"}},
	}
	n := names(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := n.EncodeVolumeContext(tc.fields); !reflect.DeepEqual(got, tc.keys) {
				t.Errorf("EncodeVolumeContext(%+v) = %v, want %v", tc.fields, got, tc.keys)
			}
			tc.keys["storage.kubernetes.io/csiProvisionerIdentity"] = "somebody else's"
			tc.keys["other.driver/size"] = "not a number"
			if got, err := n.DecodeVolumeContext(tc.keys); err != nil || !reflect.DeepEqual(got, tc.fields) {
				t.Errorf("DecodeVolumeContext(%v) = %+v, %v, want %+v", tc.keys, got, err, tc.fields)
			}
		})
	}
}

// The error must name the key and must not contain the value, which may be a misplaced secret.
func TestVolumeContextRefuses(t *testing.T) {
	tests := map[string]struct{ key, value string }{
		"a device name that climbs":            {"device-name", "../../dev/sda"},
		"a device name that is a path":         {"device-name", "disk/by-id/x"},
		"a device name that is the folder":     {"device-name", ".."},
		"a device name with a zero byte":       {"device-name", "a\x00b"},
		"a device name with a space":           {"device-name", "a b"},
		"a device name of 129 bytes":           {"device-name", strings.Repeat("d", 129)},
		"a serial with a newline":              {"serial", "secret\n"},
		"a size of zero":                       {"size", "0"},
		"a size with a unit":                   {"size", "10Gi"},
		"a negative size":                      {"size", "-5"},
		"a size with a plus":                   {"size", "+5"},
		"a size with a leading zero":           {"size", "05"},
		"an empty size":                        {"size", ""},
		"a size above the largest int64":       {"size", "9223372036854775808"},
		"a size in other digits":               {"size", "٣"},
		"a content that does not exist":        {"content", "secret"},
		"mkfs options with a device":           {"mkfs-options", "-F /dev/sda"},
		"a format-non-zero that is not a bool": {"format-non-zero", "yes"},
		"fewer operations than a pod needs":    {"read-iops", "9"},
		"more operations than the kernel has":  {"write-iops", "4294967300"},
		"operations that would be rounded":     {"write-iops", "105"},
		"operations with a unit":               {"read-iops", "1k"},
		"a bandwidth below 1 MiB":              {"read-bandwidth", "1048575"},
		"a bandwidth that is max":              {"write-bandwidth", "max"},
		"an empty bandwidth":                   {"write-bandwidth", ""},
	}
	n := names(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := n.DecodeVolumeContext(map[string]string{prefix + tc.key: tc.value})
			if !errors.Is(err, fault.InvalidArgument) || !strings.Contains(err.Error(), "volume_context: "+prefix+tc.key) {
				t.Errorf("DecodeVolumeContext(%s=%q): error %v, want one that names the key", tc.key, tc.value, err)
			}
			if err != nil && len(tc.value) > 2 && strings.Contains(err.Error(), tc.value) {
				t.Errorf("DecodeVolumeContext(%s=%q): error %q repeats the value", tc.key, tc.value, err)
			}
		})
	}
	if _, err := n.DecodeVolumeContext(map[string]string{"x": strings.Repeat("v", 4096)}); !errors.Is(err, fault.InvalidArgument) {
		t.Errorf("DecodeVolumeContext of 4097 bytes: error %v, want %v", err, fault.InvalidArgument)
	}
}

func TestPublishContextIsFresher(t *testing.T) {
	n := names(t)
	published := driver.PublishContext{DeviceName: "new", Serial: "s2", Size: 7}
	got, err := n.DecodePublishContext("v", n.EncodePublishContext(published))
	if err != nil || got != published {
		t.Fatalf("DecodePublishContext(EncodePublishContext(%+v)) = %+v, %v", published, got, err)
	}
	volume := driver.VolumeContext{DeviceName: "old", Serial: "s1", Size: 5, Content: driver.ContentCopy}
	want := driver.VolumeContext{DeviceName: "new", Serial: "s2", Size: 7, Content: driver.ContentCopy}
	if got := volume.With(published); !reflect.DeepEqual(got, want) {
		t.Errorf("With(%+v) = %+v, want %+v", published, got, want)
	}
	if got := volume.With(driver.PublishContext{}); !reflect.DeepEqual(got, volume) {
		t.Errorf("With(nothing) = %+v, want %+v", got, volume)
	}
	if _, err := n.DecodePublishContext("v", map[string]string{prefix + "device-name": "../x"}); !errors.Is(err, fault.InvalidArgument) {
		t.Errorf("DecodePublishContext(../x): error %v, want %v", err, fault.InvalidArgument)
	}
}

// While a cluster migrates from a vendor's driver to this one, each driver reads the contexts of the other.
func TestContextsOfAVendor(t *testing.T) {
	const vendor, key = "dobs.csi.digitalocean.com", "dobs.csi.digitalocean.com/volume-name"
	n, err := driver.NewNames("digitalocean", profile.ScopeRegion, vendor, nil)
	must(t, err)
	ours := driver.PublishContext{DeviceName: "scsi-0DO_Volume_pvc-1", Serial: "pvc-1", Size: 5}
	told := n.EncodePublishContext(ours)
	if want := (map[string]string{
		key: "pvc-1", vendor + "/device-name": "scsi-0DO_Volume_pvc-1", vendor + "/serial": "pvc-1", vendor + "/size": "5",
	}); !reflect.DeepEqual(told, want) {
		t.Errorf("EncodePublishContext = %v, want %v", told, want)
	}
	tests := map[string]struct {
		attached map[string]string
		want     driver.PublishContext
		says     string
	}{
		"what our controller wrote":        {attached: told, want: ours},
		"what the vendor's wrote":          {attached: map[string]string{key: "pvc-1"}, want: driver.PublishContext{DeviceName: "scsi-0DO_Volume_pvc-1"}},
		"ours wins":                        {attached: map[string]string{key: "b", vendor + "/device-name": "a"}, want: driver.PublishContext{DeviceName: "a"}},
		"nothing":                          {},
		"an empty name names no disk":      {attached: map[string]string{key: ""}},
		"another driver's key":             {attached: map[string]string{"com.digitalocean.csi.dobs/volume-name": "a"}},
		"a name that leads out of its dir": {attached: map[string]string{key: "/../../sda"}, says: "publish_context"},
		"a name with a space":              {attached: map[string]string{key: "a b"}, says: "publish_context"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := n.DecodePublishContext("v", tc.attached)
			if tc.says == "" && (err != nil || got != tc.want) {
				t.Errorf("DecodePublishContext(%v) = %+v, %v, want %+v", tc.attached, got, err, tc.want)
			}
			if tc.says != "" && (!errors.Is(err, fault.InvalidArgument) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("DecodePublishContext(%v): error %v, want one that says %q", tc.attached, err, tc.says)
			}
		})
	}
	for _, attribute := range []string{"dobs.csi.digitalocean.com/noformat", "com.digitalocean.csi.dobs/noformat"} {
		for _, value := range []string{"", "false", "true"} {
			got, err := n.DecodeVolumeContext(map[string]string{attribute: value, "other": "x"})
			if err != nil || got.NeverFormat != attribute {
				t.Errorf("DecodeVolumeContext(%s=%q) = %+v, %v, want NeverFormat", attribute, value, got, err)
			}
		}
		if got, err := names(t).DecodeVolumeContext(map[string]string{attribute: ""}); err != nil || got.NeverFormat != "" {
			t.Errorf("DecodeVolumeContext under another name = %+v, %v, want the attribute ignored", got, err)
		}
	}
	if made := n.EncodeVolumeContext(driver.VolumeContext{DeviceName: "scsi-0DO_Volume_pvc-1"}); made[key] != "" {
		t.Errorf("EncodeVolumeContext = %v, want no key of an attach", made)
	}
}

func TestParseMkfsOptions(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string // nil as opposed to empty: refused
	}{
		"words are split at spaces":            {" -E  lazy_itable_init=0,nodiscard -i 8192 ", []string{"-E", "lazy_itable_init=0,nodiscard", "-i", "8192"}},
		"quotes are refused":                   {`-L "my disk"`, nil},
		"a shell's words are refused":          {"-L $(id)", nil},
		"a device is refused":                  {"-F /dev/sda", nil},
		"a journal on a device is refused":     {"-J device=/dev/sdb", nil},
		"a device by its UUID is refused":      {"-J device=UUID=1", nil},
		"a device by its label is refused":     {"-J device=LABEL=x", nil},
		"a first word without dash is refused": {"sda -F", nil},
		"an end of options is refused":         {"-F -- x", nil},
		"a newline is refused":                 {"-F\n-i", nil},
		"letters beyond ASCII are refused":     {"-L ä", nil},
		"more than 1 KiB is refused":           {"-" + strings.Repeat("f", 1024), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := driver.ParseMkfsOptions(tc.text)
			if !reflect.DeepEqual(got, tc.want) || (err != nil) != (tc.want == nil) || err != nil && !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("ParseMkfsOptions(%q) = %q, %v, want %q", tc.text, got, err, tc.want)
			}
		})
	}
	if got, err := driver.ParseMkfsOptions(""); len(got) != 0 || err != nil {
		t.Errorf(`ParseMkfsOptions("") = %q, %v, want nothing`, got, err)
	}
}

func FuzzVolumeContext(f *testing.F) {
	f.Add("d", "s", "1", "blank", "-F", "true", "10", "1048576")
	f.Add("../d", "s s", "-1", "other", "/dev/sda", "1", "-10", "1Mi")
	f.Add("", "", "", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, device, serial, size, content, options, nonZero, iops, bandwidth string) {
		n := names(t)
		v, err := n.DecodeVolumeContext(map[string]string{
			prefix + "device-name": device, prefix + "serial": serial, prefix + "size": size,
			prefix + "content": content, prefix + "mkfs-options": options, prefix + "format-non-zero": nonZero,
			prefix + "read-iops": iops, prefix + "write-bandwidth": bandwidth,
		})
		if err != nil {
			if !errors.Is(err, fault.InvalidArgument) {
				t.Fatalf("error %v has no kind", err)
			}
			return
		}
		if strings.Contains(v.DeviceName, "/") || v.Size <= 0 || v.Limits.ReadIOPS < driver.MinIOPS || v.Limits.WriteBandwidth < driver.MinBandwidth {
			t.Errorf("accepted %+v", v)
		}
		again, err := n.DecodeVolumeContext(n.EncodeVolumeContext(v))
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Errorf("Decode(Encode(%+v)) = %+v, %v", v, again, err)
		}
	})
}

func FuzzParseMkfsOptions(f *testing.F) {
	f.Add("-E nodiscard")
	f.Add("-F /dev/sda")
	f.Fuzz(func(t *testing.T, text string) {
		words, err := driver.ParseMkfsOptions(text)
		if err != nil {
			return
		}
		for _, w := range words {
			if strings.ContainsAny(w, "/'\"$ \n") || w == "" {
				t.Errorf("ParseMkfsOptions(%q) lets %q pass", text, w)
			}
		}
	})
}

// Contexts of Linode's driver have the path of a device, and attributes for features that this driver does not support.
func TestContextsOfLinodesDriver(t *testing.T) {
	const vendor, path = "linodebs.csi.linode.com", "/dev/disk/by-id/scsi-0Linode_Volume_pvc-1"
	n, err := driver.NewNames("linode", profile.ScopeRegion, vendor, nil)
	must(t, err)
	if got := n.Segments("us-ord"); !reflect.DeepEqual(got, map[string]string{"topology.linode.com/region": "us-ord"}) {
		t.Errorf("Segments = %v, want the vendor's label and no other", got)
	}
	if told := n.EncodePublishContext(driver.PublishContext{DeviceName: "scsi-0Linode_Volume_pvc-1"}); told["devicePath"] != path {
		t.Errorf("EncodePublishContext = %v, want the path that the vendor's program reads", told)
	}
	for given, want := range map[string]string{path: "scsi-0Linode_Volume_pvc-1", "": "", "/dev/sda": "refused", "/dev/disk/by-id/../../sda": "refused", "..": "refused"} {
		got, err := n.DecodePublishContext("7-pvc-1", map[string]string{"devicePath": given})
		if refused := errors.Is(err, fault.InvalidArgument); refused != (want == "refused") || !refused && (err != nil || got.DeviceName != want) {
			t.Errorf("DecodePublishContext(%q) = %+v, %v, want %s", given, got, err, want)
		}
	}
	luks := driver.VolumeContext{LUKS: true}
	said := n.EncodeVolumeContext(luks)
	for key, want := range map[string]string{"/luks-encrypted": "true", "/luks-cipher": "aes-xts-plain64", "/luks-key-size": "512"} {
		if said[vendor+key] != want {
			t.Errorf("EncodeVolumeContext(%+v) = %v, want what the vendor's program reads", luks, said)
		}
	}
	delete(said, vendor+"/luks")
	if got, err := n.DecodeVolumeContext(said); err != nil || !got.LUKS {
		t.Errorf("DecodeVolumeContext(%v) = %+v, %v, want LUKS, as the vendor's controller says it", said, got, err)
	}
	if got, err := names(t).DecodeVolumeContext(said); err != nil || got.LUKS {
		t.Errorf("DecodeVolumeContext(%v) under another name = %+v, %v, want the attributes ignored", said, got, err)
	}
	for attribute, refused := range map[string]bool{vendor + "/luks-encrypted": false, "partition": true, "topology.linode.com/region": false} {
		said := map[string]string{attribute: "true"}
		if got, err := n.DecodeVolumeContext(said); err != nil || (got.Refused != "") != refused {
			t.Errorf("DecodeVolumeContext(%v) = %+v, %v, want refused: %t", said, got, err, refused)
		}
		if got, err := names(t).DecodeVolumeContext(said); err != nil || got.Refused != "" {
			t.Errorf("DecodeVolumeContext(%v) under another name = %+v, %v, want the attribute ignored", said, got, err)
		}
	}
}
