package mounter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Grow grows the filesystem of the device that is mounted where at is to the size of the device. When there is nothing
// to grow it does nothing. It never shrinks.
func (m *Mounter) Grow(ctx context.Context, dev BlockDevice, at State) error {
	if at.Use != Ours || at.Block {
		return fmt.Errorf("grow the filesystem of %s at %s: %w: the device is not mounted there, or is gone from this machine", dev.Path(), at.Path, fault.Precondition)
	}
	if err := m.growMounted(ctx, dev, at.Path, Filesystem(at.Mount.FSType)); err != nil {
		return fmt.Errorf("grow the filesystem of %s at %s: %w", dev.Path(), at.Path, err)
	}
	return nil
}

// errNoCapability refuses what fs/ext4/ioctl.c (ext4_resize_begin) would refuse.
var errNoCapability = fmt.Errorf("%w: the kernel grows a mounted ext4 only for a process with CAP_SYS_RESOURCE, "+
	"which the node program lacks; give its container that capability", fault.GrowCapability)

// growStaged is growMounted for a volume that is being staged. Where the kernel does not grow the filesystem, the
// volume is used with the size that that has.
func (m *Mounter) growStaged(ctx context.Context, dev BlockDevice, path string, fs Filesystem) error {
	err := m.growMounted(ctx, dev, path, fs)
	if errors.Is(err, errNoCapability) {
		m.log("a filesystem stays smaller than its device", "device", dev.Path(), "path", path, "reason", err)
		return nil
	}
	return err
}

// growMounted grows a mounted filesystem whose size is less than that of its device.
func (m *Mounter) growMounted(ctx context.Context, dev BlockDevice, path string, fs Filesystem) error {
	size, err := dev.Size()
	if err != nil {
		return err
	}
	f, err := sizeOf(dev, path, fs)
	if err != nil || size/f.blockSize <= f.blocks {
		return err
	}
	if fs == Ext4 {
		err = growExt4(path, size/f.blockSize)
	} else {
		err = m.must(context.WithoutCancel(ctx), Command{Name: "xfs_growfs", Args: []string{"-d", path}})
	}
	if err != nil {
		return err
	}
	f, err = sizeOf(dev, path, fs)
	if err == nil && size/f.blockSize-f.blocks >= f.rest {
		err = fmt.Errorf("%w: the %s grew without an error and is still smaller than its device", fault.Unavailable, fs)
	}
	return err
}

// fsSize is how large a mounted filesystem is. Less than rest may be left of the device: the kernel adds no group that could
// hold little more than its own tables.
type fsSize struct{ blocks, blockSize, rest int64 }

// sizeOf asks a mounted filesystem for its size. What the device has of a mounted ext4's superblock is the kernel's own copy;
// the superblock of an xfs on the disk may be older.
func sizeOf(dev BlockDevice, path string, fs Filesystem) (fsSize, error) {
	switch fs {
	case Ext4:
		b := make([]byte, kib)
		if err := readFull(dev.File(), b, kib); err != nil {
			return fsSize{}, err
		}
		return ext4Size(b)
	case XFS:
		b := make([]byte, 112)
		if err := mountIoctl(path, xfsGeometry, b); err != nil {
			return fsSize{}, err
		}
		ne := binary.NativeEndian
		f := fsSize{blocks: int64(ne.Uint64(b[32:])), blockSize: int64(ne.Uint32(b[0:])), rest: xfsMinGroup}
		if f.blockSize <= 0 || f.blocks <= 0 {
			return fsSize{}, fmt.Errorf("the xfs at %s has an impossible size: %w", path, fault.Precondition)
		}
		return f, nil
	}
	return fsSize{}, fmt.Errorf("%w: filesystem %q cannot be grown", fault.Precondition, fs)
}

// ext4Size reads a superblock; the places are those of ext4_super_block.
func ext4Size(b []byte) (fsSize, error) {
	le := binary.LittleEndian
	logSize, low, high, incompatible := le.Uint32(b[0x18:]), le.Uint32(b[0x4:]), le.Uint32(b[0x150:]), le.Uint32(b[0x60:])
	f := fsSize{blocks: int64(low), rest: int64(le.Uint32(b[0x20:]))} // a group
	if incompatible&ext64bit != 0 {
		f.blocks |= int64(high) << 32
	}
	if le.Uint16(b[0x38:]) != 0xef53 || logSize > 6 || f.blocks <= 0 || f.rest <= 0 {
		return fsSize{}, fmt.Errorf("the ext4 superblock has an impossible size: %w", fault.FormatDamaged)
	}
	f.blockSize = kib << logSize
	return f, nil
}

const (
	// ext4Resize is EXT4_IOC_RESIZE_FS, with the new number of blocks. A size that leaves the last group too small the kernel
	// rounds down (fs/ext4/resize.c, ext4_resize_fs). resize2fs does the same to a mounted filesystem, but first opens the
	// device for writing, which a kernel may refuse (bdev_allow_write_mounted).
	ext4Resize = 0x40086610
	ext64bit   = 0x80 // EXT4_FEATURE_INCOMPAT_64BIT

	// xfsGeometry is XFS_IOC_FSGEOMETRY_V1, which every kernel has.
	xfsGeometry = 0x80705864
	// xfsMinGroup is XFS_MIN_AG_BLOCKS: the kernel adds no allocation group smaller than that.
	xfsMinGroup = 64
)

// growExt4 grows a mounted ext4 to a number of blocks.
func growExt4(path string, blocks int64) error {
	if !mayGrowExt4() {
		return errNoCapability
	}
	if err := mountIoctl(path, ext4Resize, binary.NativeEndian.AppendUint64(nil, uint64(blocks))); err != nil {
		return fmt.Errorf("%w; see the kernel's log for why", err)
	}
	return nil
}

// must runs a command that has to end with code 0.
func (m *Mounter) must(ctx context.Context, cmd Command) error {
	out, err := m.run.Run(ctx, cmd)
	switch {
	case err != nil:
		return err
	case out.ExitCode != 0:
		return fmt.Errorf("%w: %s ended with code %d: %s", fault.Precondition, cmd.Name, out.ExitCode, out.Tail())
	}
	return nil
}

// mayGrowExt4 says whether the kernel lets this process grow a mounted ext4.
func mayGrowExt4() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	return hasCapability(string(status), unix.CAP_SYS_RESOURCE)
}

// hasCapability reads the effective capabilities out of /proc/self/status.
func hasCapability(status string, capability uint) bool {
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && set>>capability&1 == 1
		}
	}
	return false
}

// mountIoctl fills buf by an ioctl on the directory at path.
func mountIoctl(path string, request uintptr, buf []byte) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w: %w", path, fault.Unavailable, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&buf[0]))); errno != 0 {
		return fmt.Errorf("%s: ask the filesystem: %w: %w", path, fault.Unavailable, errno)
	}
	return nil
}
