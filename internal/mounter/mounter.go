// Package mounter makes filesystems, mounts them, grows them and takes them down again.
//
// It never asks which cloud a device comes from: it gets an open block device whose identity the
// caller has proven. It keeps no state of its own about volumes; what is true is read from the
// device and from the kernel's mount table each time, so a killed program loses nothing.
package mounter

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	mountutils "k8s.io/mount-utils"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Filesystem is a kind of filesystem this package can make, mount and grow.
type Filesystem string

// The filesystems.
const (
	Ext4 Filesystem = "ext4"
	XFS  Filesystem = "xfs"
)

// LUKS stands for the header of an encrypted device, by blkid's name, where a format is decided. It is no filesystem
// that a volume can be asked to have.
const LUKS Filesystem = "crypto_LUKS"

// ParseFilesystem reads a filesystem's name; the empty name is ext4.
func ParseFilesystem(name string) (Filesystem, error) {
	switch fs := Filesystem(name); fs {
	case "":
		return Ext4, nil
	case Ext4, XFS:
		return fs, nil
	}
	return "", fmt.Errorf("filesystem %q is neither ext4 nor xfs: %w", name, fault.InvalidArgument)
}

// BlockDevice is an open device whose identity the caller has proven.
type BlockDevice interface {
	// File is the open descriptor, owned by the device.
	File() *os.File
	// Path is the kernel's name of the device, such as /dev/loop3.
	Path() string
	// Number is the device number.
	Number() uint64
	// Size asks the kernel for the size now, in bytes.
	Size() (int64, error)
	// Verify proves identity and size once more.
	Verify(ctx context.Context) error
}

// Config is what a Mounter needs from outside. The zero value is usable.
type Config struct {
	// Dir is the kubelet's folder: nothing is mounted, unmounted, made or removed elsewhere. The way to it may lead
	// through symbolic links, the way from it to a path may not. Empty means /.
	Dir string
	// SysDir is where sysfs is mounted; empty means /sys.
	SysDir string
	// Runner runs the programs; nil means real ones, found on PATH.
	Runner Runner
	// Log gets what an operator may want to know later; may be nil.
	Log func(msg string, keysAndValues ...any)
}

// Mounter does the work. It is safe for concurrent use, but the caller lets only one call at a time
// work on a device. A command that changes a disk is not broken off when the call's context ends,
// because a mkfs or fsck that is killed half-way is worse than one whose result is not awaited: the call
// returns when the command has ended, and begins no other.
type Mounter struct {
	dir, sysDir string
	// mounts runs mount(8).
	mounts mountutils.Interface
	run    Runner
	log    func(msg string, keysAndValues ...any)
	// listings reads the roots of filesystems, by the id of the mount.
	listings wait.Guard
}

// New returns a Mounter.
func New(cfg Config) *Mounter {
	m := &Mounter{
		dir: filepath.Clean(cmp.Or(cfg.Dir, "/")), sysDir: cmp.Or(cfg.SysDir, "/sys"), mounts: mountutils.NewWithoutSystemd(""),
		run: cfg.Runner, log: cfg.Log,
	}
	if m.run == nil {
		m.run = commands{}
	}
	if m.log == nil {
		m.log = func(string, ...any) {}
	}
	return m
}

// Run runs one program, with the Runner that the mounter has, as long as ctx lasts.
func (m *Mounter) Run(ctx context.Context, cmd Command) (Output, error) { return m.run.Run(ctx, cmd) }
