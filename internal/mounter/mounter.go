// Package mounter has the types that the packages below it share: format decides whether a device may be formatted and formats
// it, mount mounts, binds, grows and unmounts, luks encrypts, device finds the device of a volume.
//
// None of them depends on a cloud: format, mount and luks take an open block device whose identity the caller has proven. They
// keep no state about volumes but read the device and the kernel's mount table each time, so a killed program loses nothing.
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

// LUKS is blkid's name for the header of an encrypted device. The format gate handles it as a filesystem; no volume can ask
// for it.
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
