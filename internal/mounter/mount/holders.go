package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
)

// isNodeFilesystem reports whether device nodes are in filesystems of this type. Others are not asked for their
// nodes: one of them may hang.
func isNodeFilesystem(kind string) bool { return kind == "devtmpfs" || kind == "tmpfs" }

// nodeNumber returns the device number of the block device node at path; 0, which no disk has, for a node that its
// folder lacks by now: its disk has gone, and another one may have the number.
func nodeNumber(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, unix.ENOTBLK
	}
	if st.Nlink == 0 {
		return 0, nil
	}
	return st.Rdev, nil
}

// Holders lists what still uses the block device, as far as this process can see it: mount points of its filesystem,
// bind mounts of its node, and devices stacked on it. An encrypted mapping that is itself in use is represented by what
// uses it. Those in except are left out.
func (t *Table) Holders(dev uint64, except ...string) ([]string, error) {
	for i, path := range except {
		except[i] = t.m.realPath(path)
	}
	out, err := t.users(dev)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(out, func(path string) bool { return slices.Contains(except, path) }), nil
}

func (t *Table) users(dev uint64) ([]string, error) {
	var out []string
	for _, info := range t.entries {
		if t.m.holds(info, dev) {
			out = append(out, info.Mountpoint)
		}
	}
	stacked, err := filepath.Glob(filepath.Join(t.m.Sysfs.Folder(dev), "holders/*"))
	if err != nil {
		return nil, err
	}
	for _, path := range stacked {
		above, err := t.aboveMapping(path)
		if err != nil {
			return nil, err
		}
		if len(above) == 0 {
			above = []string{path}
		}
		out = append(out, above...)
	}
	return out, nil
}

// aboveMapping returns what uses an encrypted mapping, which is a holder in sysfs; nothing for another one.
func (t *Table) aboveMapping(holder string) ([]string, error) {
	number, err := host.NumberOf(holder)
	if err != nil {
		return nil, nil //nolint:nilerr // it has gone by now
	}
	if _, ok, err := t.m.Sysfs.Crypt(number); err != nil || !ok {
		return nil, err
	}
	return t.users(number)
}

// holds reports whether one entry of the mount table keeps the block device in use.
func (m *Mounter) holds(info *mountinfo.Info, dev uint64) bool {
	if !isNodeFilesystem(info.FSType) {
		return unix.Mkdev(uint32(info.Major), uint32(info.Minor)) == dev
	}
	number, err := nodeNumber(info.Mountpoint)
	if err != nil || number != dev {
		return false
	}
	live, err := m.Sysfs.HasFile(dev)
	return live || err != nil
}

// ExplainHolders returns what Holders has found as a person can act on it: a device stacked on another one is not unpublished, and has
// a name that the tools which remove it take.
func ExplainHolders(holders []string) string {
	var explained []string
	for _, holder := range holders {
		explained = append(explained, explainHolder(holder))
	}
	return strings.Join(explained, ", ")
}

func explainHolder(holder string) string {
	data, err := os.ReadFile(filepath.Join(holder, "dm/name"))
	if err != nil {
		return holder
	}
	name := strings.TrimSpace(string(data))
	if uuid, err := os.ReadFile(filepath.Join(holder, "dm/uuid")); err == nil && strings.HasPrefix(string(uuid), "mpath-") {
		return fmt.Sprintf("%s, which is %.128q of multipathd: it has taken the disk, and takes each one until the node's "+
			"/etc/multipath.conf excludes the cloud's disks (`blacklist`; then `multipath -f` of that name)", holder, name)
	}
	return fmt.Sprintf("%s, which is the device-mapper device %.128q: something on the node has activated what a pod wrote to the volume, such as a volume group "+
		"of LVM (`vgchange -an` of that group, or `dmsetup remove`, lets it go)", holder, name)
}
