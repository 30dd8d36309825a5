package mount

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// Table is one reading of the mount table of this process. Each call reads it once and makes its decisions from that.
type Table struct {
	m       *Mounter
	entries []*mountinfo.Info
}

// Use is what is mounted at a path, compared with one block device.
type Use int

// The uses.
const (
	Free    Use = iota // nothing is mounted there
	Ours               // a filesystem of the device or of the encrypted mapping on it, or the node of one
	Dead               // a filesystem or node of a disk that is no longer in this machine
	Foreign            // anything else
)

// State is a path with what is mounted there.
type State struct {
	// Path is the path as in the mount table, with the symbolic links to kubelet's folder resolved.
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
	mountinfo.Info
	// Device is the number of the block device: that of the filesystem, or of the node where a node is mounted.
	Device uint64
}

// AllOptions are those of the mount followed by those of the filesystem.
func (m Mount) AllOptions() []string { return splitMountOptions([]string{m.Options, m.VFSOptions}) }

// ReadOnly reports whether nothing can be written through this mount.
func (m Mount) ReadOnly() bool { return slices.Contains(m.AllOptions(), "ro") }

// Table reads the mount table.
func (m *Mounter) Table() (*Table, error) {
	entries, err := host.Mounts(host.MountTable)
	if err != nil {
		return nil, err
	}
	return &Table{m, entries}, nil
}

// At returns what is mounted at a path, compared with the block device of this number; 0 is no device. It compares numbers and
// not names, because a name may belong to another disk by now.
func (t *Table) At(path string, dev uint64) (State, error) {
	s := State{Path: t.m.realPath(path), asked: path}
	info, ok := t.topmost(s.Path)
	if !ok {
		return s, nil
	}
	s.Use, s.Mount = Foreign, newMount(info)
	kind, err := mounter.ParseFilesystem(info.FSType)
	switch {
	case isNodeFilesystem(info.FSType):
		number, err := nodeNumber(s.Path)
		if errors.Is(err, unix.ENOTBLK) {
			return s, nil
		}
		if err != nil {
			return State{}, fmt.Errorf("look at %s: %w: %w", path, fault.Unavailable, err)
		}
		s.Block, s.Mount.Device = true, number
	case err != nil || string(kind) != info.FSType:
		return s, nil // no filesystem of a volume
	}
	live, err := t.m.Sysfs.Alive(s.Mount.Device)
	if s.Block && err == nil && live {
		live, err = t.m.Sysfs.HasFile(s.Mount.Device)
	}
	switch {
	case err != nil:
		return State{}, err
	case !live:
		s.Use = Dead
	case s.Mount.Device == dev:
		s.Use = Ours
	case dev != 0:
		disk, err := t.m.Sysfs.DiskOf(s.Mount.Device)
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
func (t *Table) topmost(path string) (*mountinfo.Info, bool) {
	for _, info := range slices.Backward(t.entries) {
		if info.Mountpoint == path {
			return info, true
		}
	}
	return nil, false
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

func newMount(info *mountinfo.Info) Mount {
	return Mount{Info: *info, Device: unix.Mkdev(uint32(info.Major), uint32(info.Minor))}
}

// MountOf returns the mount of any path of this machine.
func (t *Table) MountOf(path string) (Mount, error) {
	// A path on a dead filesystem cannot be opened, but its mount point is in the table.
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

// NotOurs is the error for a path with a mount of something else.
func (s State) NotOurs() error {
	if s.Use == Dead {
		return fmt.Errorf("the mount there is of a disk (%s) that is gone from this machine; stop the pods that use it and unmount it: %w",
			s.Mount.Source, fault.Conflict)
	}
	return fmt.Errorf("%s (%s) is mounted there, which is not this volume: %w", s.Mount.Source, s.Mount.FSType, fault.Conflict)
}

// access is what a mount allows.
type access struct {
	flags    uintptr
	readOnly bool
}

func (m Mount) access() access { return access{flags: flagsOf(m.AllOptions()), readOnly: m.ReadOnly()} }

// gives is the error for a mount of the volume with another access than the requested one. The mount is never changed, because a
// pod may use it.
func (s State) gives(want access) error {
	switch has := s.Mount.access(); {
	case has.readOnly != want.readOnly:
		return fmt.Errorf("it is mounted there with other access (read-only: %v); unmount it first: %w", has.readOnly, fault.Conflict)
	case has.flags != want.flags:
		return fmt.Errorf("it is mounted there with other options (%s): %w", strings.Join(s.Mount.AllOptions(), ","), fault.Conflict)
	}
	return nil
}
