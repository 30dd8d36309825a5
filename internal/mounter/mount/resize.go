package mount

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// Grow grows the filesystem that is mounted at the directory of at to the size of its device. It never shrinks it.
func (m *Mounter) Grow(ctx context.Context, dev mounter.BlockDevice, at State) error {
	if at.Use != Ours || at.Block {
		return fmt.Errorf("grow the filesystem of %s at %s: %w: the device is not mounted there, or is gone from this machine", dev.Path(), at.Path, fault.Precondition)
	}
	err := m.growMounted(ctx, dev, at.Path, mounter.Filesystem(at.Mount.FSType))
	if err != nil && (at.Mount.ReadOnly() || at.Mount.ReadOnlyByError()) {
		// With another kind the kubelet would not mount the volume for the next pod.
		err = fmt.Errorf("%w: it is mounted read-only: %w", fault.Precondition, err)
	}
	if err != nil {
		return fmt.Errorf("grow the filesystem of %s at %s: %w", dev.Path(), at.Path, err)
	}
	return nil
}

// errNoCapability refuses what fs/ext4/ioctl.c (ext4_resize_begin) would refuse.
var errNoCapability = fmt.Errorf("%w: the kernel grows a mounted ext4 only for a process with CAP_SYS_RESOURCE, "+
	"which the node program lacks; give its container that capability", fault.GrowCapability)

// errFixedSize refuses what ext4_resize_begin refuses too, for any process.
var errFixedSize = fmt.Errorf("%w: the kernel grows no mounted ext4 with the feature sparse_super2; scale the workload to zero and "+
	"run e2fsck -f and resize2fs on the volume's disk by hand", fault.Precondition)

// errRefused is the kernel's refusal of an ext4 with recorded errors (EPERM), with more inodes than it can count (EINVAL), or with a journal
// that is too small for the change (ENOSPC, start_this_handle in fs/jbd2/transaction.c), and of an xfs without a free block (ENOSPC). A repeat
// has the same outcome, and with another kind the kubelet would not mount the volume for the next pod.
var errRefused = fmt.Errorf("%w: the kernel refuses to grow it as it is, and its log has the reason; if it is full, delete files; if it has "+
	"recorded errors, scale the workload to zero: the next stage checks it", fault.Precondition)

// growStaged is growMounted for a volume that is being staged. If the kernel cannot grow the filesystem, the volume is used with
// the filesystem's size.
func (m *Mounter) growStaged(ctx context.Context, dev mounter.BlockDevice, path string, fs mounter.Filesystem) error {
	err := m.growMounted(ctx, dev, path, fs)
	if errors.Is(err, errNoCapability) || errors.Is(err, errFixedSize) || errors.Is(err, errRefused) {
		m.log("a filesystem stays smaller than its device", "device", dev.Path(), "path", path, "reason", err)
		return nil
	}
	return err
}

// growMounted grows a mounted filesystem whose size is less than that of its device.
func (m *Mounter) growMounted(ctx context.Context, dev mounter.BlockDevice, path string, fs mounter.Filesystem) error {
	size, err := dev.Size()
	if err != nil {
		return err
	}
	f, err := sizeOf(dev, path, fs)
	if err != nil || f.full(fs, size) {
		return err
	}
	if fs == mounter.Ext4 {
		err = growExt4(path, f, size/f.blockSize)
	} else {
		err = m.growXFS(context.WithoutCancel(ctx), path)
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

// fsSize is the size of a mounted filesystem. Up to rest of the device may stay unused: the kernel adds no group that would have
// room for little more than its own tables.
type fsSize struct {
	blocks, blockSize, rest int64
	fixed                   bool // the kernel cannot grow it while it is mounted
}

// full reports whether there is nothing to grow on a device of this size. A new xfs leaves a rest of whole TiB from 4 to 63, and kernels from
// 5.13 to 6.7 answer ENOSPC to a growth by it, unless they have commit 84712492e6da (siderolabs/talos#8515).
func (f fsSize) full(fs mounter.Filesystem, device int64) bool {
	more := device/f.blockSize - f.blocks
	return more <= 0 || fs == mounter.XFS && more < f.rest
}

// sizeOf returns the size of a mounted filesystem. For ext4 it reads the superblock from the device, whose cache is the kernel's own
// copy; the superblock of xfs on the disk may be stale.
func sizeOf(dev mounter.BlockDevice, path string, fs mounter.Filesystem) (fsSize, error) {
	switch fs {
	case mounter.Ext4:
		b := make([]byte, 1024)
		if err := host.ReadFull(dev.File(), b, 1024); err != nil {
			return fsSize{}, err
		}
		return ext4Size(b)
	case mounter.XFS:
		dir, err := openDir(path)
		if err != nil {
			return fsSize{}, err
		}
		defer func() { _ = dir.Close() }()
		x, err := host.ReadXFS(dir.Fd())
		if err != nil {
			return fsSize{}, fmt.Errorf("%s: %w", path, err)
		}
		return fsSize{blocks: x.Blocks, blockSize: x.BlockSize, rest: xfsMinGroup}, nil
	}
	return fsSize{}, fmt.Errorf("%w: filesystem %q cannot be grown", fault.Precondition, fs)
}

// ext4Size reads a superblock; the places are those of ext4_super_block.
func ext4Size(b []byte) (fsSize, error) {
	le := binary.LittleEndian
	logSize, low, high, incompatible := le.Uint32(b[0x18:]), le.Uint32(b[0x4:]), le.Uint32(b[0x150:]), le.Uint32(b[0x60:])
	f := fsSize{blocks: int64(low), rest: int64(le.Uint32(b[0x20:])), fixed: le.Uint32(b[0x5c:])&extSparseSuper2 != 0} // rest: a group
	if incompatible&ext64bit != 0 {
		f.blocks |= int64(high) << 32
	}
	if le.Uint16(b[0x38:]) != 0xef53 || logSize > 6 || f.blocks <= 0 || f.rest <= 0 {
		return fsSize{}, fmt.Errorf("the ext4 superblock has an impossible size: %w", fault.FormatDamaged)
	}
	f.blockSize = 1024 << logSize
	return f, nil
}

const (
	// ext4Resize is EXT4_IOC_RESIZE_FS, with the new number of blocks. A size that leaves the last group too small the kernel
	// rounds down (fs/ext4/resize.c, ext4_resize_fs). resize2fs does the same to a mounted filesystem, but first opens the
	// device for writing, which a kernel may refuse (bdev_allow_write_mounted).
	ext4Resize = 0x40086610
	ext64bit   = 0x80 // EXT4_FEATURE_INCOMPAT_64BIT

	extSparseSuper2 = 0x200 // EXT4_FEATURE_COMPAT_SPARSE_SUPER2

	// xfsMinGroup is XFS_MIN_AG_BLOCKS: the kernel adds no allocation group smaller than that.
	xfsMinGroup = 64
)

// growExt4 grows a mounted ext4 to a number of blocks.
func growExt4(path string, f fsSize, blocks int64) error {
	if f.fixed {
		return errFixedSize
	}
	if !mayGrowExt4() {
		return errNoCapability
	}
	dir, err := openDir(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return resizeError(path, host.Ioctl(dir.Fd(), ext4Resize, binary.NativeEndian.AppendUint64(nil, uint64(blocks))))
}

// resizeError returns the error of a growth by the kernel.
func resizeError(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%s: %w: %w", path, errRefused, err)
	}
	return fmt.Errorf("%s: %w; see the kernel's log for why", path, err)
}

// growXFS grows a mounted xfs to the size of its device.
func (m *Mounter) growXFS(ctx context.Context, path string) error {
	out, err := m.Programs.Run(ctx, host.Command{Name: "xfs_growfs", Args: []string{"-d", path}})
	if err != nil || out.ExitCode == 0 {
		return err
	}
	kind := error(fault.Precondition)
	if strings.Contains(out.Tail(), "No space left on device") { // democratic-csi/democratic-csi#349
		kind = errRefused
	}
	return fmt.Errorf("%w: xfs_growfs ended with code %d: %s", kind, out.ExitCode, out.Tail())
}

// mayGrowExt4 reports whether this process has the capability to grow a mounted ext4.
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

// openDir opens the root of a mounted filesystem.
func openDir(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w: %w", path, fault.Unavailable, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
