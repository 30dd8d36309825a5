package files

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// extent is a part of a file, in bytes.
type extent struct{ start, length int64 }

// mapped is an allocated part of a file.
type mapped struct {
	extent
	// physical is the offset on the disk as the filesystem counts it; files with the same offset share blocks.
	physical int64
	flags    uint32
}

// fiemapCall is FS_IOC_FIEMAP of linux/fs.h, which package unix lacks.
const (
	fiemapCall = 0xC020660B
	// The flags of an extent, FIEMAP_EXTENT_*.
	fiemapLast      = 0x1
	fiemapUnknown   = 0x2
	fiemapDelayed   = 0x4
	fiemapUnwritten = 0x800
	fiemapShared    = 0x2000
	fiemapExtents   = 256
)

// fiemap is struct fiemap of linux/fiemap.h with space for fiemapExtents extents.
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

// extents returns the allocated parts of the file below size, in order. ok is false on a filesystem
// without FIEMAP.
func extents(f *os.File, size int64) (found []mapped, ok bool, err error) {
	m := new(fiemap)
	for at := int64(0); at < size; {
		m.start, m.length, m.count, m.flags, m.mapped = uint64(at), uint64(size-at), fiemapExtents, 0, 0
		err := pool.RetryEINTR(func() error {
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemapCall, uintptr(unsafe.Pointer(m))); errno != 0 {
				return errno
			}
			return nil
		})
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		last := m.mapped == 0
		for _, e := range m.extents[:min(m.mapped, fiemapExtents)] {
			found = append(found, mapped{extent{int64(e.logical), int64(e.length)}, int64(e.physical), e.flags})
			at = max(at, int64(e.logical+e.length))
			last = last || e.flags&fiemapLast != 0
		}
		if last {
			break
		}
	}
	return found, true, nil
}

// holes returns the unallocated parts of the file below size. It does not use SEEK_HOLE, which reports
// reserved but unwritten blocks as holes. Without FIEMAP the whole file is one hole.
func holes(f *os.File, size int64) ([]extent, error) {
	mappings, ok, err := extents(f, size)
	if err != nil {
		return nil, err
	}
	if !ok {
		return []extent{{0, size}}, nil
	}
	var found []extent
	at := int64(0)
	for _, m := range mappings {
		if m.start > at {
			found = append(found, extent{at, min(m.start, size) - at})
		}
		at = max(at, m.start+m.length)
	}
	if at < size {
		found = append(found, extent{at, size - at})
	}
	return found, nil
}

// written returns how many bytes of the file below size hold data; everything else reads as zeros. It does not use
// SEEK_DATA, which reports unwritten blocks as data while zeros that were read from them are in the page cache. Without
// FIEMAP all of the file may.
func written(f *os.File, size int64) (total int64, err error) {
	// The sync allocates blocks for data that is still in the page cache.
	if err := f.Sync(); err != nil {
		return 0, err
	}
	mappings, ok, err := extents(f, size)
	if err != nil || !ok {
		return size, err
	}
	for _, m := range mappings {
		if m.flags&fiemapUnwritten == 0 && m.start < size {
			total += min(m.length, size-m.start)
		}
	}
	return total, nil
}
