package mounter

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const mountInfoPath = "/proc/self/mountinfo"

// Table is one reading of the mount table of this process. A call decides from one reading whose mount is where.
type Table struct {
	m       *Mounter
	entries []mountutils.MountInfo
}

// Use says what is mounted at a path, compared with one block device.
type Use int

// The uses.
const (
	Free    Use = iota // nothing is mounted there
	Ours               // a filesystem of the device or of the encrypted mapping on it, or the node of one
	Dead               // a filesystem or node of a disk that is no longer in this machine
	Foreign            // anything else
)

// State is what a Table holds about a path.
type State struct {
	// Path is the path without the symbolic links that lead to the kubelet's folder, as the kernel reports it.
	Path  string
	asked string // the path as it was asked for
	Use   Use
	// Block is set for the bind of a block device's node, whichever device that is.
	Block bool
	// Mount is the topmost mount at the path; empty where it is Free.
	Mount Mount
}

// Mount is one entry of the mount table.
type Mount struct {
	mountutils.MountInfo
	// Device is the number of the block device: that of the node where a node is mounted, and the member's for btrfs,
	// whose own number is made up by the kernel. For a btrfs that cannot be resolved and for filesystems without a
	// device it is the made-up number.
	Device uint64
}

// Options are those of the mount followed by those of the filesystem.
func (m Mount) Options() []string { return slices.Concat(m.MountOptions, m.SuperOptions) }

// ReadOnly reports whether nothing can be written through this mount.
func (m Mount) ReadOnly() bool { return slices.Contains(m.Options(), "ro") }

// Table reads the mount table.
func (m *Mounter) Table() (*Table, error) {
	entries, err := mountTable()
	if err != nil {
		return nil, err
	}
	return &Table{m, entries}, nil
}

// At returns what is mounted at a path, compared with the block device of that number; 0 is no device. Only numbers
// are compared, never names: a name may have passed to another disk.
func (t *Table) At(path string, dev uint64) (State, error) {
	s := State{Path: t.m.realPath(path), asked: path}
	info, ok := t.topmost(s.Path)
	if !ok {
		return s, nil
	}
	s.Use, s.Mount = Foreign, newMount(info)
	kind, err := ParseFilesystem(info.FsType)
	switch {
	case isNodeFilesystem(info.FsType):
		number, err := nodeNumber(s.Path)
		if errors.Is(err, unix.ENOTBLK) {
			return s, nil
		}
		if err != nil {
			return State{}, fmt.Errorf("look at %s: %w: %w", path, fault.Unavailable, err)
		}
		s.Block, s.Mount.Device = true, number
	case err != nil || string(kind) != info.FsType:
		return s, nil // no filesystem of a volume
	}
	live, err := t.m.Alive(s.Mount.Device)
	if s.Block && err == nil && live {
		live, err = t.m.hasFile(s.Mount.Device)
	}
	switch {
	case err != nil:
		return State{}, err
	case !live:
		s.Use = Dead
	case s.Mount.Device == dev:
		s.Use = Ours
	case dev != 0:
		disk, err := t.m.DiskOf(s.Mount.Device)
		if err != nil {
			return State{}, err
		}
		if disk == dev {
			s.Use = Ours
		}
	}
	return s, nil
}

// topmost returns the last entry at a path: what is mounted later covers what was there.
func (t *Table) topmost(path string) (mountutils.MountInfo, bool) {
	for _, info := range slices.Backward(t.entries) {
		if info.MountPoint == path {
			return info, true
		}
	}
	return mountutils.MountInfo{}, false
}

// withID returns the entry of a mount by the kernel's id.
func (t *Table) withID(id int) (Mount, bool) {
	for _, info := range t.entries {
		if info.ID == id {
			return newMount(info), true
		}
	}
	return Mount{}, false
}

func newMount(info mountutils.MountInfo) Mount {
	at := Mount{MountInfo: info, Device: unix.Mkdev(uint32(info.Major), uint32(info.Minor))}
	if info.FsType == string(Btrfs) {
		if number, err := btrfsMount(info); err == nil {
			at.Device = number
		}
	}
	return at
}

// MountOf returns the mount that a path is on, which may be any path of this machine.
func (t *Table) MountOf(path string) (Mount, error) {
	// A dead filesystem cannot be looked at, but its mount point stands in the table.
	if info, ok := t.topmost(path); ok {
		return newMount(info), nil
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Mount{}, fmt.Errorf("look at %s: %w: %w", path, fault.Unavailable, err)
	}
	defer func() { _ = unix.Close(fd) }()
	id, err := mountID(fd)
	if err != nil {
		return Mount{}, err
	}
	at, ok := t.withID(id)
	if !ok {
		return Mount{}, fmt.Errorf("the mount of %s is not in the mount table: %w", path, fault.Unavailable)
	}
	return at, nil
}

// NotOurs is the error of a path whose mount is in the way.
func (s State) NotOurs() error {
	if s.Use == Dead {
		return fmt.Errorf("the mount there is of a disk (%s) that is gone from this machine; stop the pods that use it and unmount it: %w",
			s.Mount.Source, fault.Conflict)
	}
	return fmt.Errorf("%s (%s) is mounted there, which is not this volume: %w", s.Mount.Source, s.Mount.FsType, fault.Conflict)
}

// access is what a mount lets its users do.
type access struct {
	flags    uintptr
	readOnly bool
}

func (m Mount) access() access { return access{flags: flagsOf(m.Options()), readOnly: m.ReadOnly()} }

// gives is the error of a mount of the volume that gives another access than the one wanted. It is never changed to
// fit: a pod may be using it.
func (s State) gives(want access) error {
	switch has := s.Mount.access(); {
	case has.readOnly != want.readOnly:
		return fmt.Errorf("it is mounted there with other access (read-only: %v); unmount it first: %w", has.readOnly, fault.Conflict)
	case has.flags != want.flags:
		return fmt.Errorf("it is mounted there with other options (%s): %w", strings.Join(s.Mount.Options(), ","), fault.Conflict)
	}
	return nil
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
// more as soon as any program on the machine has mounted something without a source: the kernel writes that as nothing
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
