package mounter

import (
	"context"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// FormatRequest says what EnsureFormatted may do.
type FormatRequest struct {
	Volume        string
	Filesystem    Filesystem
	MkfsOptions   []string
	Size          int64 // promised; 0: not known
	ReadOnly      bool  // never formatted
	HasContent    bool  // made from a snapshot or another volume: never formatted
	BlankCreated  bool  // this driver created it blank
	FormatNonZero bool  // the class's parameter
	Prezeroed     bool  // whoever made the device guarantees that it reads as zeros
}

// EnsureFormatted returns the filesystem that is on the device, making it first if the gate allows.
func (m *Mounter) EnsureFormatted(ctx context.Context, dev BlockDevice, req FormatRequest) (Filesystem, error) {
	return "", fault.Unsupported
}

// ValidateMkfsOptions refuses options that are not known to be harmless.
func ValidateMkfsOptions(fs Filesystem, options []string) error { return fault.Unsupported }

// MountRequest says how a device is to be mounted.
type MountRequest struct {
	Target     string
	Filesystem Filesystem
	Options    []string
	ReadOnly   bool
}

// MountDevice checks, mounts and grows. Idempotent.
func (m *Mounter) MountDevice(ctx context.Context, dev BlockDevice, req MountRequest) error {
	return fault.Unsupported
}

// GrowFilesystem grows the filesystem mounted at mountpoint to the device's size.
func (m *Mounter) GrowFilesystem(ctx context.Context, dev BlockDevice, mountpoint string) error {
	return fault.Unsupported
}

// Mount is one entry of the mount table.
type Mount struct {
	Path       string
	Source     string
	Device     uint64 // of the block device, for btrfs too; 0 for a btrfs that cannot be resolved
	Root       string // which directory of the filesystem is mounted
	Filesystem string
	Options    []string // of the mount and of the filesystem
	ReadOnly   bool
}

// MountAt returns the topmost mount exactly at path.
func (m *Mounter) MountAt(path string) (Mount, bool, error) { return Mount{}, false, fault.Unsupported }

// IsMountOf says whether a live filesystem of the block device is mounted at path.
func (m *Mounter) IsMountOf(path string, dev uint64) (bool, error) { return false, fault.Unsupported }

// IsBindOf says whether path is a bind mount of the node of the live block device.
func (m *Mounter) IsBindOf(path string, dev uint64) (bool, error) { return false, fault.Unsupported }

// BindOptions says how BindDir mounts.
type BindOptions struct {
	ReadOnly bool
	Options  []string // those of the mount, such as noexec, are used; those of a filesystem are not
}

// BindDir binds the filesystem mounted at staging to target.
func (m *Mounter) BindDir(ctx context.Context, staging, target string, o BindOptions) error {
	return fault.Unsupported
}

// BindDevice binds the device's node to the file target.
func (m *Mounter) BindDevice(ctx context.Context, dev BlockDevice, target string, readOnly bool) error {
	return fault.Unsupported
}

// Unmount unmounts path; not mounted is no error.
func (m *Mounter) Unmount(ctx context.Context, path string) error { return fault.Unsupported }

// RemoveTarget removes an empty unmounted directory or file; missing is no error.
func (m *Mounter) RemoveTarget(path string) error { return fault.Unsupported }

// Holders lists what still uses the block device: mount points and running commands.
func (m *Mounter) Holders(dev uint64) ([]string, error) { return nil, fault.Unsupported }

// CheckIdle proves that nothing has the device in use, in any mount namespace.
func (m *Mounter) CheckIdle(dev BlockDevice) error { return fault.Unsupported }

// Stats is how full a filesystem is.
type Stats struct {
	TotalBytes, UsedBytes, AvailableBytes    int64
	TotalInodes, UsedInodes, AvailableInodes int64
}

// FilesystemStats asks the filesystem at path.
func (m *Mounter) FilesystemStats(path string) (Stats, error) { return Stats{}, fault.Unsupported }

// CheckTarget refuses a path that is relative, not clean, or leads through a symbolic link.
func CheckTarget(path string) error { return fault.Unsupported }
