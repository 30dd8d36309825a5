// Package mounter has what the packages below it share: format decides whether a device may be formatted and does it, mount
// mounts, binds, grows and unmounts, luks encrypts, device finds the device of a volume.
//
// None of them asks which cloud a device comes from: format, mount and luks get an open block device whose identity the
// caller has proven. They keep no state of their own about volumes; what is true is read from the
// device and from the kernel's mount table each time, so a killed program loses nothing.
package mounter

import (
	"context"
	"fmt"
	"os"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Filesystem is a kind of filesystem that a volume can have.
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
