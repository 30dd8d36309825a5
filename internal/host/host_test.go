package host

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// Other mounts on the node must not hide the volumes' mounts: k8s.io/mount-utils reads no mount if one has no source, and mountinfo
// none if a line has 64 KiB.
func TestOddMountsDoNotHideTheOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		line string
		want mountinfo.Info
	}{
		"a mount without a source": {"66 28 0:39 / /x rw,relatime - tmpfs  rw,size=1k\n", mountinfo.Info{
			ID: 66, Parent: 28, Minor: 39, Root: "/", Mountpoint: "/x", Options: "rw,relatime", FSType: "tmpfs", VFSOptions: "rw,size=1k",
		}},
		"white space in a path": {"66 28 7:39 / /a\r\u00a0\v\\040\\012z rw - ext4 /dev/loop39 rw\n", mountinfo.Info{
			ID: 66, Parent: 28, Major: 7, Minor: 39, Root: "/", Mountpoint: "/a\r\u00a0\v \nz", Options: "rw", FSType: "ext4", Source: "/dev/loop39", VFSOptions: "rw",
		}},
		"a dash for a path": {"66 28 7:39 /- /- rw - ext4 - rw\n", mountinfo.Info{
			ID: 66, Parent: 28, Major: 7, Minor: 39, Root: "/-", Mountpoint: "/-", Options: "rw", FSType: "ext4", Source: "-", VFSOptions: "rw",
		}},
		"a volume's": {"65 28 7:3 /pod /pods/x/mount ro,noatime master:3 propagate_from:2 - xfs /dev/loop3 rw,attr2,logbufs=8\n", mountinfo.Info{
			ID: 65, Parent: 28, Major: 7, Minor: 3, Root: "/pod", Mountpoint: "/pods/x/mount", Options: "ro,noatime", Optional: "master:3 propagate_from:2",
			FSType: "xfs", Source: "/dev/loop3", VFSOptions: "rw,attr2,logbufs=8",
		}},
		"an overlay of 500 folders": {"66 28 0:39 / /x rw - overlay overlay rw,lowerdir=" + strings.Repeat("/var/lib/containers/storage/overlay/l:", 5000) + "\n",
			mountinfo.Info{ID: 66, Parent: 28, Minor: 39, Root: "/", Mountpoint: "/x", Options: "rw", FSType: "overlay", Source: "overlay"}},
		"a source of 60,000 bytes": {"66 28 0:39 / /x rw - tmpfs " + strings.Repeat("x", 60000) + " rw\n", mountinfo.Info{
			ID: 66, Parent: 28, Minor: 39, Root: "/", Mountpoint: "/x", Options: "rw", FSType: "tmpfs", Source: strings.Repeat("x", 60000), VFSOptions: "rw",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			const others = "28 1 254:1 / / rw,relatime - ext4 /dev/root ro,errors=remount-ro\n"
			got, err := Mounts(file(t, others+tc.line+others))
			if err != nil || len(got) != 3 || !reflect.DeepEqual(*got[1], tc.want) {
				t.Errorf("the table = %.500v, %.500v, want %.500v in it", got, err, tc.want)
			}
		})
	}
}

func TestATableThatMakesNoSenseIsAnError(t *testing.T) {
	for _, bad := range []string{"28 1 254:1 / / rw\n", strings.Repeat("x", 1<<17) + "\n", "28 1 254:1 " + strings.Repeat("/x", 1<<16) + " / rw - ext4 /dev/root rw\n"} {
		if got, err := Mounts(file(t, bad)); err == nil {
			t.Errorf("Mounts of %.40q... = %v, want an error", bad, got)
		}
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mountinfo")
	must(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestDeviceNumbers(t *testing.T) {
	if got, err := DeviceNumber("259:1048575\n"); err != nil || got != 259<<8|0xff|0xfff<<20 {
		t.Errorf("DeviceNumber = %#x, %v", got, err)
	}
	for _, bad := range []string{"", "7", "7:", ":3", "a:b", "7:3:1", "-1:2"} {
		if got, err := DeviceNumber(bad); err == nil {
			t.Errorf("DeviceNumber(%q) = %d, want an error", bad, got)
		}
	}
}
