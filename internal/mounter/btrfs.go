package mounter

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
)

// The ioctls of linux/btrfs.h that x/sys/unix does not have.
const (
	btrfsFSInfo  = 0x8400941f // BTRFS_IOC_FS_INFO, 1024 bytes
	btrfsDevInfo = 0xd000941e // BTRFS_IOC_DEV_INFO, 4096 bytes
)

// mountIoctl fills buf by an ioctl on the directory at path.
func mountIoctl(path string, request uintptr, buf []byte) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w: %w", path, fault.Unavailable, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := dirIoctl(fd, request, buf); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// dirIoctl fills buf by an ioctl on an open directory.
func dirIoctl(fd int, request uintptr, buf []byte) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&buf[0]))); errno != 0 {
		return fmt.Errorf("ask the filesystem: %w: %w", fault.Unavailable, errno)
	}
	return nil
}

// btrfsDeviceOf returns the number of the only block device of the btrfs that an open directory is on. The mount
// table has a number that the kernel made up, and the source there may be a by-id path or outlive its device, so the
// filesystem itself is asked.
func btrfsDeviceOf(fd int) (uint64, error) {
	numbers, err := btrfsDevicesOf(fd)
	if err != nil {
		return 0, err
	}
	if len(numbers) != 1 {
		return 0, fmt.Errorf("the btrfs has %d devices, not one: %w", len(numbers), fault.Precondition)
	}
	return numbers[0], nil
}

// btrfsDevicesOf returns the numbers of the block devices of the btrfs that an open file is on.
func btrfsDevicesOf(fd int) ([]uint64, error) {
	id, err := btrfsID(fd)
	if err != nil {
		return nil, err
	}
	return btrfsMembers(id)
}

// btrfsID returns the id of the btrfs that an open file is on.
func btrfsID(fd int) (string, error) {
	info := make([]byte, 1024)
	if err := dirIoctl(fd, btrfsFSInfo, info); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", info[16:20], info[20:22], info[22:24], info[24:26], info[26:32]), nil
}

// btrfsMembers returns the device numbers of a mounted btrfs.
func btrfsMembers(id string) ([]uint64, error) {
	files, err := filepath.Glob("/sys/fs/btrfs/" + id + "/devices/*/dev")
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the devices of btrfs %s: %w: %w", id, fault.Unavailable, err)
		}
		number, err := host.DeviceNumber(string(text))
		if err != nil {
			return nil, err
		}
		out = append(out, number)
	}
	return out, nil
}

// btrfsHas says whether the block device belongs to any mounted btrfs.
func btrfsHas(dev uint64) bool {
	numbers, err := btrfsMembers("*")
	if err != nil {
		return true // unknown: then it does not count as free
	}
	for _, number := range numbers {
		if number == dev {
			return true
		}
	}
	return false
}

// maxBtrfsIDs is how many device ids below the highest one are tried. The highest id stands on the disk, so
// it may be any number; a filesystem of one device whose device was replaced a few times has a small one.
const maxBtrfsIDs = 1024

// btrfsSize returns the id and the size of the only device as the mounted btrfs sees it.
func btrfsSize(ctx context.Context, path string) (id uint64, size int64, err error) {
	info := make([]byte, 1024)
	if err := mountIoctl(path, btrfsFSInfo, info); err != nil {
		return 0, 0, err
	}
	ne := binary.NativeEndian
	if devices := ne.Uint64(info[8:]); devices != 1 {
		return 0, 0, fmt.Errorf("btrfs at %s has %d devices, not one: %w", path, devices, fault.Precondition)
	}
	id, size, err = onlyBtrfsDevice(ctx, ne.Uint64(info[0:]), func(dev []byte) error { return mountIoctl(path, btrfsDevInfo, dev) })
	if err != nil {
		return 0, 0, fmt.Errorf("btrfs at %s: %w", path, err)
	}
	return id, size, nil
}

// onlyBtrfsDevice finds the device with the highest id. Ids are not reused when a device is replaced, so the
// only one need not be 1. query is BTRFS_IOC_DEV_INFO.
func onlyBtrfsDevice(ctx context.Context, highest uint64, query func(dev []byte) error) (id uint64, size int64, err error) {
	err = fmt.Errorf("it has no device with an id of %d or less: %w", highest, fault.Precondition)
	for id := highest; id > 0 && highest-id < maxBtrfsIDs; id-- {
		if ctx.Err() != nil {
			return 0, 0, fmt.Errorf("find its device: %w: %w", fault.Unavailable, ctx.Err())
		}
		dev := make([]byte, 4096)
		binary.NativeEndian.PutUint64(dev, id)
		if err = query(dev); err == nil {
			return id, int64(binary.NativeEndian.Uint64(dev[32:])), nil
		}
	}
	return 0, 0, err
}
