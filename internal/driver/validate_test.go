package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestCheckID(t *testing.T) {
	for _, id := range []string{
		"12345", "12345-my_label", "f00dfeed-0000-1111-2222-333344445555", "epd1234567890",
		"node-a.example.org/0123456789abcdef0123456789abcdef", "node-a/snap-0123456789abcdef0123456789abcdef",
		strings.Repeat("a", 128), "a..b",
	} {
		if err := driver.CheckVolumeID("volume_id", id); err != nil {
			t.Errorf("CheckVolumeID(%q): %v", id, err)
		}
	}
	hostile := map[string]string{
		"a missing id":                  "",
		"a path that climbs":            "../volumes/x",
		"a path that climbs inside":     "node/../x",
		"a path that climbs at the end": "node/..",
		"an absolute path":              "/etc/passwd",
		"a path with an empty step":     "node//x",
		"a query":                       "x?force=1",
		"a fragment":                    "x#y",
		"an escape":                     "x%2f..",
		"a space":                       "a b",
		"a newline":                     "a\nb",
		"a zero byte":                   "a\x00",
		"unicode":                       "диск",
		"a full-width slash":            "a／b",
		"bytes that are no text":        "\xff\xfe",
		"129 bytes":                     strings.Repeat("a", 129),
		"10 kB":                         strings.Repeat("a", 10_000),
	}
	for name, id := range hostile {
		t.Run(name, func(t *testing.T) {
			err := driver.CheckVolumeID("volume_id", id)
			if !errors.Is(err, fault.InvalidArgument) || !strings.HasPrefix(err.Error(), "volume_id: ") {
				t.Errorf("CheckVolumeID(%q): error %v, want one that names the field", id, err)
			}
			if err != nil && len(err.Error()) > 200 {
				t.Errorf("CheckVolumeID(%q): the message has %d bytes", id, len(err.Error()))
			}
		})
	}
	if err := driver.CheckNodeID("node_id", strings.Repeat("n", 256)); err != nil {
		t.Errorf("CheckNodeID of 256 bytes: %v", err)
	}
	if err := driver.CheckNodeID("node_id", strings.Repeat("n", 257)); err == nil {
		t.Error("CheckNodeID of 257 bytes: no error")
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"pvc-1", "../x", "имя с пробелом\n", strings.Repeat("n", 128), "A?b#c"} {
		if err := driver.CheckName("name", name); err != nil {
			t.Errorf("CheckName(%q): %v", name, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("n", 129), "a\x00b", "a\x0bb", "a\u0085b", "a\x7f", "\xff"} {
		if err := driver.CheckName("name", name); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("CheckName(%q): error %v, want %v", name, err, fault.InvalidArgument)
		}
	}
}

func TestCheckPath(t *testing.T) {
	if err := driver.CheckPath("p", "/var/lib/kubelet/plugins/x/globalmount"); err != nil {
		t.Error(err)
	}
	for _, path := range []string{
		"", "relative", "./a", "/a/../b", "/a/..", "/a//b", "/a/./b", "/a/", "/", "/a\x00b", "/" + strings.Repeat("a", 5000),
	} {
		if err := driver.CheckPath("p", path); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("CheckPath(%q): error %v, want %v", path, err, fault.InvalidArgument)
		}
	}
}

func mountCap(mode csi.VolumeCapability_AccessMode_Mode, m *csi.VolumeCapability_MountVolume) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: m},
	}
}

func TestCheckCapability(t *testing.T) {
	writer := csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	plain := func(fs string) *csi.VolumeCapability_MountVolume {
		return &csi.VolumeCapability_MountVolume{FsType: fs}
	}
	flags := func(flags ...string) *csi.VolumeCapability_MountVolume {
		return &csi.VolumeCapability_MountVolume{MountFlags: flags}
	}
	tests := map[string]struct {
		capability *csi.VolumeCapability
		says       string // empty: accepted
	}{
		"a writer on one node":                   {mountCap(writer, plain("")), ""},
		"a reader on one node":                   {mountCap(csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, plain("ext4")), ""},
		"one writer on one node":                 {mountCap(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, plain("xfs")), ""},
		"many writers on one node":               {mountCap(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, plain("xfs")), ""},
		"a missing capability":                   {nil, "missing"},
		"a missing access mode":                  {mountCap(0, plain("")), "access_mode: missing"},
		"a reader on many nodes":                 {mountCap(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, plain("")), "supported are SINGLE_NODE_WRITER"},
		"a writer on many nodes":                 {mountCap(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, plain("")), "supported are"},
		"a mode from the future":                 {mountCap(99, plain("")), "supported are"},
		"a missing access type":                  {&csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: writer}}, "access_type"},
		"a filesystem that is not ours":          {mountCap(writer, plain("vfat")), "ext4 and xfs"},
		"btrfs, which cannot be mounted twice":   {mountCap(writer, plain("btrfs")), "a volume and its clone"},
		"a mount group":                          {mountCap(writer, &csi.VolumeCapability_MountVolume{VolumeMountGroup: "5"}), "volume_mount_group"},
		"mount flags above 4 KiB":                {mountCap(writer, flags(strings.Repeat("f", 4097))), "mount_flags"},
		"an empty mount flag":                    {mountCap(writer, flags("noatime", "")), "mount_flags"},
		"a mount flag with a zero byte":          {mountCap(writer, flags("a\x00b")), "mount_flags"},
		"mount flags as a class would have them": {mountCap(writer, flags("noatime", "nodev")), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := driver.CheckCapability("volume_capability", tc.capability)
			switch {
			case tc.says == "" && err != nil:
				t.Errorf("error %v, want none", err)
			case tc.says != "" && (!errors.Is(err, fault.InvalidArgument) ||
				!strings.HasPrefix(err.Error(), "volume_capability") || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("error %v, want one that says %q", err, tc.says)
			}
		})
	}
	if err := driver.CheckCapabilities("volume_capabilities", nil); !errors.Is(err, fault.InvalidArgument) {
		t.Errorf("CheckCapabilities of none: error %v, want %v", err, fault.InvalidArgument)
	}
	good, bad := mountCap(writer, plain("")), mountCap(writer, plain("vfat"))
	err := driver.CheckCapabilities("volume_capabilities", []*csi.VolumeCapability{good, bad})
	if err == nil || !strings.HasPrefix(err.Error(), "volume_capabilities[1]") {
		t.Errorf("CheckCapabilities: error %v, want one that names the second entry", err)
	}
}

func FuzzCheckVolumeID(f *testing.F) {
	f.Add("../volumes/x")
	f.Add("node-a/0123")
	f.Fuzz(func(t *testing.T, id string) {
		if driver.CheckVolumeID("volume_id", id) != nil {
			return
		}
		if id == "" || len(id) > 128 || strings.ContainsAny(id, "?#%& \\\n\x00") || strings.HasPrefix(id, "/") ||
			strings.Contains("/"+id+"/", "/../") || strings.Contains("/"+id+"/", "//") {
			t.Errorf("CheckVolumeID lets %q pass", id)
		}
	})
}
