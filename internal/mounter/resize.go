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

// growMounted grows a mounted filesystem if it is smaller than its device.
func (m *Mounter) growMounted(ctx context.Context, dev BlockDevice, path string, fs Filesystem) error {
	size, err := dev.Size()
	if err != nil {
		return err
	}
	if fs == Ext4 {
		return growExt4(dev, path, size)
	}
	cmd, err := growCommand(path, fs, size)
	if err != nil || cmd.Name == "" {
		return err
	}
	if err := m.must(context.WithoutCancel(ctx), cmd); err != nil {
		return err
	}
	switch again, err := growCommand(path, fs, size); {
	case err != nil:
		return err
	case again.Name != "":
		return fmt.Errorf("%w: %s reported success but the filesystem is still smaller than its device", fault.Unavailable, cmd.Name)
	}
	return nil
}

// ext4Resize is EXT4_IOC_RESIZE_FS, with the new number of blocks. A size that leaves the last group too small the kernel
// rounds down (fs/ext4/resize.c, ext4_resize_fs). resize2fs does the same to a mounted filesystem, but first opens the device
// for writing, which a kernel may refuse (bdev_allow_write_mounted).
const ext4Resize = 0x40086610

// growExt4 grows a mounted ext4 if it is smaller than its device.
func growExt4(dev BlockDevice, path string, size int64) error {
	sb, err := readExtSuper(dev.File()) // of a mounted ext4 this is the kernel's own copy
	if err != nil || !sb.canGrow(size) {
		return err
	}
	if !mayGrowExt4() {
		return errNoCapability
	}
	blocks := binary.NativeEndian.AppendUint64(nil, uint64(size/sb.blockSize))
	if err := mountIoctl(path, ext4Resize, blocks); err != nil {
		return fmt.Errorf("%w; see the kernel's log for why", err)
	}
	return nil
}

// growCommand returns the command that grows the mounted filesystem, or one without a name when it
// is as large as its device already. It reads the size from the filesystem itself and runs nothing.
func growCommand(path string, fs Filesystem, size int64) (Command, error) {
	switch fs {
	case XFS:
		grow, err := xfsCanGrow(path, size)
		if err != nil || !grow {
			return Command{}, err
		}
		return Command{Name: "xfs_growfs", Args: []string{"-d", path}}, nil
	}
	return Command{}, fmt.Errorf("%w: filesystem %q cannot be grown", fault.Precondition, fs)
}

// xfsGeometry is XFS_IOC_FSGEOMETRY_V1, which every kernel has.
const xfsGeometry = 0x80705864

// xfsMinGroup is XFS_MIN_AG_BLOCKS: the kernel adds no allocation group smaller than that.
const xfsMinGroup = 64

// xfsCanGrow reads the size from the mounted xfs: the superblock on the disk may be older.
func xfsCanGrow(path string, size int64) (bool, error) {
	b := make([]byte, 112)
	if err := mountIoctl(path, xfsGeometry, b); err != nil {
		return false, err
	}
	ne := binary.NativeEndian
	blockSize, group := int64(ne.Uint32(b[0:])), int64(ne.Uint32(b[8:]))
	blocks := int64(ne.Uint64(b[32:]))
	if blockSize <= 0 || group <= 0 || blocks <= 0 {
		return false, fmt.Errorf("the xfs at %s has an impossible size: %w", path, fault.Precondition)
	}
	gain := size/blockSize - blocks
	return gain > 0 && (blocks%group != 0 || gain >= xfsMinGroup), nil
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
