package device

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sizeOf asks the kernel how many bytes an open block device has.
func sizeOf(f *os.File) (int64, error) {
	var size uint64
	// x/sys has no helper for an ioctl that fills a 64-bit value on every architecture.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKGETSIZE64, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0, errno
	}
	return int64(size), nil
}
