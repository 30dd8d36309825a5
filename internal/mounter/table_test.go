package mounter

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	mountutils "k8s.io/mount-utils"
)

const usualMounts = `22 28 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
28 1 254:1 / / rw,relatime - ext4 /dev/root ro,errors=remount-ro
65 28 7:3 /pod /var/lib/kubelet/pods/x/mount ro,noatime master:3 propagate_from:2 - xfs /dev/loop3 rw,attr2,logbufs=8
`

// What anybody mounts anywhere on the machine must not keep the volumes' mounts from being seen.
func TestMountTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(file, []byte(usualMounts), 0o600); err != nil {
		t.Fatal(err)
	}
	want, err := mountutils.ParseMountInfo(file)
	if err != nil || len(want) != 3 {
		t.Fatalf("mount-utils reads %v, %v", want, err)
	}
	tests := map[string]struct {
		text string
		more *mountutils.MountInfo
	}{
		"as mount-utils reads it": {"", nil},
		"a mount without a source": {"66 28 0:39 / /x rw,relatime - tmpfs  rw,size=1k\n", &mountutils.MountInfo{
			ID: 66, ParentID: 28, Minor: 39, Root: "/", MountPoint: "/x", MountOptions: []string{"rw", "relatime"},
			FsType: "tmpfs", SuperOptions: []string{"rw", "size=1k"},
		}},
		"white space in a path": {"66 28 7:39 / /a\r\u00a0\v\\040\\012z rw - ext4 /dev/loop39 rw\n", &mountutils.MountInfo{
			ID: 66, ParentID: 28, Major: 7, Minor: 39, Root: "/", MountPoint: "/a\r\u00a0\v \nz", MountOptions: []string{"rw"},
			FsType: "ext4", Source: "/dev/loop39", SuperOptions: []string{"rw"},
		}},
		"a dash for a path": {"66 28 7:39 /- /- rw - ext4 - rw\n", &mountutils.MountInfo{
			ID: 66, ParentID: 28, Major: 7, Minor: 39, Root: "/-", MountPoint: "/-", MountOptions: []string{"rw"},
			FsType: "ext4", Source: "-", SuperOptions: []string{"rw"},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseMountTable(usualMounts + tc.text)
			all := want[:3:3]
			if tc.more != nil {
				all = append(all, *tc.more)
			}
			for _, table := range [][]mountutils.MountInfo{got, all} {
				for i := range table {
					table[i].OptionalFields = append([]string{}, table[i].OptionalFields...) // nil or empty is the same
				}
			}
			if err != nil || !reflect.DeepEqual(got, all) {
				t.Errorf("parseMountTable = %+v, %v, want %+v", got, err, all)
			}
		})
	}
	for _, line := range []string{"\n", "66 28 0:39 / /x rw tmpfs tmpfs rw\n", "66 28 0:39 / /x - tmpfs tmpfs rw\n", "66 28 0 / /x rw - tmpfs tmpfs rw\n", "66 28 0:39 / /x rw - tmpfs\n"} {
		if got, err := parseMountTable(usualMounts + line); err == nil {
			t.Errorf("parseMountTable with %q = %+v, want an error", strings.TrimSpace(line), got)
		}
	}
}
