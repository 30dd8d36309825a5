package pool

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// extent is a part of a file, in bytes.
type extent struct{ start, length int64 }

// fiemapCall is FS_IOC_FIEMAP of linux/fs.h, which package unix lacks.
const (
	fiemapCall    = 0xC020660B
	fiemapLast    = 1 // FIEMAP_EXTENT_LAST
	fiemapExtents = 256
)

// fiemap is struct fiemap of linux/fiemap.h with room for some extents.
type fiemap struct {
	start, length uint64
	flags         uint32
	mapped        uint32
	count         uint32
	_             uint32
	extents       [fiemapExtents]struct {
		logical, physical, length uint64
		_                         [2]uint64
		flags                     uint32
		_                         [3]uint32
	}
}

// holes returns the parts of the file below size that have no place on the disk. SEEK_HOLE would not
// do: it takes blocks that are reserved but unwritten for holes. A filesystem that cannot tell is one hole.
func holes(f *os.File, size int64) ([]extent, error) {
	var found []extent
	for at := int64(0); at < size; {
		m := fiemap{start: uint64(at), length: uint64(size - at), count: fiemapExtents}
		err := retryEINTR(func() error {
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemapCall, uintptr(unsafe.Pointer(&m))); errno != 0 {
				return errno
			}
			return nil
		})
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) {
			return []extent{{0, size}}, nil
		}
		if err != nil {
			return nil, err
		}
		last := m.mapped == 0
		for _, e := range m.extents[:min(m.mapped, fiemapExtents)] {
			if start := int64(e.logical); start > at {
				found = append(found, extent{at, min(start, size) - at})
			}
			at = max(at, int64(e.logical+e.length))
			last = last || e.flags&fiemapLast != 0
		}
		if last {
			if at < size {
				found = append(found, extent{at, size - at})
			}
			break
		}
	}
	return found, nil
}
