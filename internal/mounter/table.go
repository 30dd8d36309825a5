package mounter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const mountInfoPath = "/proc/self/mountinfo"

// Mount is one entry of the mount table.
type Mount struct {
	// Path is where it is mounted.
	Path string
	// Source is what the kernel calls the device; only for people to read.
	Source string
	// Device is the number of the block device, for btrfs too, whose own number is made up by the
	// kernel. For a btrfs that cannot be resolved and for filesystems without a device it is the
	// made-up number.
	Device uint64
	// Root is which directory of the filesystem is mounted.
	Root string
	// Filesystem is its type as the kernel names it.
	Filesystem string
	// Options are those of the mount followed by those of the filesystem.
	Options []string
	// ReadOnly says whether nothing can be written through this mount.
	ReadOnly bool
}

// mountTable reads the mount table of this process, in the order of mounting. Since Linux 5.8 a mount that stays is
// never missing from it, whatever else is mounted and unmounted while it is read; older ones are not supported.
func mountTable() ([]mountutils.MountInfo, error) {
	text, err := os.ReadFile(mountInfoPath)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w: %w", fault.Unavailable, err)
	}
	return parseMountTable(string(text))
}

// parseMountTable reads what proc_pid_mountinfo(5) describes. Not with mount-utils, which can read nothing at all any
// more as soon as anybody on the machine has mounted something without a source: the kernel writes that as nothing
// between two spaces. It also takes a carriage return in a path for the end of it.
func parseMountTable(text string) ([]mountutils.MountInfo, error) {
	var table []mountutils.MountInfo
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, more := strings.Split(left, " "), strings.Split(right, " ")
		if !ok || len(fields) < 6 || len(more) < 3 {
			return nil, fmt.Errorf("read the mount table: line %q: %w", line, fault.Unavailable)
		}
		var info mountutils.MountInfo
		if _, err := fmt.Sscanf(strings.Join(fields[:3], " "), "%d %d %d:%d", &info.ID, &info.ParentID, &info.Major, &info.Minor); err != nil {
			return nil, fmt.Errorf("read the mount table: line %q: %w: %w", line, fault.Unavailable, err)
		}
		info.Root, info.MountPoint = unescape(fields[3]), unescape(fields[4])
		info.MountOptions, info.OptionalFields = splitMountOptions(fields[5:6]), fields[6:]
		info.FsType, info.Source, info.SuperOptions = more[0], more[1], splitMountOptions(more[2:3])
		table = append(table, info)
	}
	return table, nil
}

// unescape undoes what the kernel does to spaces, tabs, line ends and backslashes in its tables.
func unescape(s string) string {
	if !strings.ContainsRune(s, '\\') {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && isOctal(s[i+1:i+4]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// isOctal says whether three characters are the octal number of a byte.
func isOctal(s string) bool {
	return s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' && s[2] <= '7'
}

// MountAt returns the topmost mount exactly at path.
func (m *Mounter) MountAt(path string) (Mount, bool, error) {
	info, ok, err := topmost(path)
	if err != nil || !ok {
		return Mount{}, false, err
	}
	at := Mount{
		Path: path, Source: info.Source, Root: info.Root, Filesystem: info.FsType,
		Options: slices.Concat(info.MountOptions, info.SuperOptions),
		Device:  unix.Mkdev(uint32(info.Major), uint32(info.Minor)),
	}
	at.ReadOnly = slices.Contains(at.Options, "ro")
	if at.Filesystem == string(Btrfs) {
		if number, err := btrfsDevice(path); err == nil {
			at.Device = number
		}
	}
	return at, true, nil
}

// topmost finds the last entry of the table at path: what is mounted later covers what was there.
func topmost(path string) (mountutils.MountInfo, bool, error) {
	table, err := mountTable()
	if err != nil {
		return mountutils.MountInfo{}, false, err
	}
	for _, info := range slices.Backward(table) {
		if info.MountPoint == path {
			return info, true, nil
		}
	}
	return mountutils.MountInfo{}, false, nil
}

// IsMountOf says whether a filesystem of the block device is mounted at path and the device is
// still there: the mount of a disk that was pulled out stays in the table, and reads from it may
// still work, but what is written to it is lost.
func (m *Mounter) IsMountOf(path string, dev uint64) (bool, error) {
	at, ok, err := m.MountAt(path)
	if err != nil || !ok || at.Device != dev {
		return false, err
	}
	return alive(dev)
}

// IsBindOf says whether path is a bind mount of the node of the block device and the device is
// still there.
func (m *Mounter) IsBindOf(path string, dev uint64) (bool, error) {
	_, ok, err := topmost(path)
	if err != nil || !ok {
		return false, err
	}
	if number, err := nodeNumber(path); err != nil || number != dev {
		return false, nil //nolint:nilerr // whatever is there, it is not the node
	}
	return alive(dev)
}

// alive says whether the kernel still has a block device of this number.
func alive(dev uint64) (bool, error) {
	_, err := os.Stat(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, fmt.Errorf("look for block device %d:%d: %w: %w", unix.Major(dev), unix.Minor(dev), fault.Unavailable, err)
}

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

// holderLooks is how often the mount table is read again while it holds a btrfs that cannot be told
// from the one that is asked for.
const holderLooks = 3

// Holders lists what still uses the block device, as far as this process can see it: mount points
// of its filesystem, bind mounts of its node, and devices stacked on it.
func (m *Mounter) Holders(dev uint64) ([]string, error) {
	var out []string
	for look := 1; ; look++ {
		table, err := mountTable()
		if err != nil {
			return nil, err
		}
		var sure bool
		// A mount that vanished after the table was read cannot be asked what it was. The next table
		// lacks it; one that is covered by another mount is there again.
		if out, sure = holdersIn(table, dev, btrfsMount, btrfsHas); sure || look == holderLooks {
			break
		}
	}
	stacked, err := filepath.Glob(fmt.Sprintf("/sys/dev/block/%d:%d/holders/*", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return nil, err
	}
	return append(out, stacked...), nil
}

// holdersIn returns the mount points of a table that keep the block device in use. It is sure unless
// it had to count a btrfs that nobody can ask.
func holdersIn(table []mountutils.MountInfo, dev uint64, resolve func(mountutils.MountInfo) (uint64, error),
	anyBtrfs func(uint64) bool,
) (out []string, sure bool) {
	type superblock struct{ major, minor int }
	known, found := map[superblock]uint64{}, false
	var unknown []mountutils.MountInfo
	inBtrfs := anyBtrfs(dev)
	for _, info := range table {
		if info.FsType != string(Btrfs) {
			if holds(info, dev) {
				out = append(out, info.MountPoint)
			}
			continue
		}
		if !inBtrfs {
			continue // asking means opening, and somebody may want to unmount it in that moment
		}
		number, err := resolve(info)
		if err != nil {
			unknown = append(unknown, info)
			continue
		}
		known[superblock{info.Major, info.Minor}] = number
		if number == dev {
			out, found = append(out, info.MountPoint), true
		}
	}
	sure = true
	for _, info := range unknown {
		number, asked := known[superblock{info.Major, info.Minor}] // another mount of the same filesystem
		switch {
		case asked && number == dev:
			out = append(out, info.MountPoint)
		case !asked && !found: // else it is another one: a device is in one filesystem only
			out, sure = append(out, info.MountPoint), false
		}
	}
	return out, sure
}

// btrfsMount returns the device of the btrfs of one entry of the mount table. It is an error when
// something else is at that path by now.
func btrfsMount(info mountutils.MountInfo) (uint64, error) {
	fd, err := unix.Open(info.MountPoint, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return 0, err
	}
	if st.Mask&unix.STATX_MNT_ID != 0 && st.Mnt_id != uint64(info.ID) {
		return 0, fmt.Errorf("another mount is at %s: %w", info.MountPoint, fault.Unavailable)
	}
	return btrfsDeviceOf(fd)
}

// holds says whether one entry of the mount table, no btrfs, keeps the block device in use.
func holds(info mountutils.MountInfo, dev uint64) bool {
	switch info.FsType {
	case "devtmpfs", "tmpfs":
		// A bind mount of a node. Other filesystems are not asked: one of them may hang.
		number, err := nodeNumber(info.MountPoint)
		return err == nil && number == dev
	}
	return unix.Mkdev(uint32(info.Major), uint32(info.Minor)) == dev
}
