package mounter

import (
	"reflect"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// What anybody mounts anywhere on the machine must not keep the volumes' mounts from being seen: k8s.io/mount-utils reads nothing any more
// as soon as something without a source is mounted, and takes a carriage return in a path for its end.
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
	} {
		t.Run(name, func(t *testing.T) {
			const others = "28 1 254:1 / / rw,relatime - ext4 /dev/root ro,errors=remount-ro\n"
			got, err := mountinfo.GetMountsFromReader(strings.NewReader(others+tc.line+others), nil)
			if err != nil || len(got) != 3 || !reflect.DeepEqual(*got[1], tc.want) {
				t.Errorf("the table = %+v, %v, want %+v in it", got, err, tc.want)
			}
		})
	}
}
