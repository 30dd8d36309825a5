package host

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// xfsGeometry is XFS_IOC_FSGEOMETRY_V1 of xfs_fs.h, which every kernel has and package unix lacks. Its struct
// xfs_fsop_geom_v1 has 112 bytes.
const xfsGeometry = 0x80705864

// XFS is the geometry of a mounted xfs.
type XFS struct {
	BlockSize, Blocks int64
	// Reflink: files can share blocks.
	Reflink bool
}

// ReadXFS reads the geometry of the xfs that has an open file or folder.
func ReadXFS(fd uintptr) (XFS, error) {
	b := make([]byte, 112)
	if err := Ioctl(fd, xfsGeometry, b); err != nil {
		return XFS{}, err
	}
	ne := binary.NativeEndian
	x := XFS{BlockSize: int64(ne.Uint32(b)), Blocks: int64(ne.Uint64(b[32:])), Reflink: ne.Uint32(b[92:])&(1<<20) != 0}
	if x.BlockSize <= 0 || x.Blocks <= 0 {
		return XFS{}, fmt.Errorf("the xfs has an impossible size: %w", fault.Precondition)
	}
	return x, nil
}

// Ioctl makes a request whose argument is buf.
func Ioctl(fd, request uintptr, buf []byte) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&buf[0]))); errno != 0 {
		return fmt.Errorf("ask the filesystem: %w: %w", fault.Unavailable, errno)
	}
	return nil
}
