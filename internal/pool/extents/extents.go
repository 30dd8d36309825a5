// Package extents reads where the filesystem has the bytes of a file, by FIEMAP (Documentation/filesystems/fiemap.rst of Linux).
package extents

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// Range is a part of a file, in bytes.
type Range struct{ Start, Length int64 }

// End is the first byte after the range.
func (r Range) End() int64 { return r.Start + r.Length }

// Mapping is an allocated part of a file.
type Mapping struct {
	Range
	// Physical is the offset on the disk as the filesystem counts it; files with the same offset share blocks.
	Physical int64
	Flags    uint32
}

// The flags of a Mapping, FIEMAP_EXTENT_* of linux/fiemap.h.
const (
	Last      = 0x1
	Unknown   = 0x2
	Delayed   = 0x4
	Unwritten = 0x800
	Merged    = 0x1000
	Shared    = 0x2000
)

const (
	// fiemapCall is FS_IOC_FIEMAP of linux/fs.h, which package unix lacks.
	fiemapCall = 0xC020660B
	// perCall is the maximum number of extents in one answer of the kernel.
	perCall = 256
)

// fiemap is struct fiemap of linux/fiemap.h with space for perCall extents.
type fiemap struct {
	start, length uint64
	flags         uint32
	mapped        uint32
	count         uint32
	_             uint32
	extents       [perCall]struct {
		logical, physical, length uint64
		_                         [2]uint64
		flags                     uint32
		_                         [3]uint32
	}
}

// ErrNoFIEMAP is returned on a filesystem without FIEMAP.
var ErrNoFIEMAP = errors.New("the filesystem does not report the extents of files")

// Reader reads the mappings of a part of a file in their order. It holds one answer of the kernel, however many there are.
type Reader struct {
	file     *os.File
	at, size int64
	answer   fiemap
	used     uint32
	last     bool
}

// NewReader returns a Reader of the bytes from a start up to a size. What is only in the page cache may be Delayed or missing, so a
// caller that needs all of it syncs the file first.
func NewReader(f *os.File, start, size int64) *Reader {
	return &Reader{file: f, at: start, size: size}
}

// Next returns the next mapping, which may begin before the start and end beyond the size; false after the last one.
func (r *Reader) Next() (Mapping, bool, error) {
	if r.used == r.answer.mapped {
		if r.last || r.at >= r.size {
			return Mapping{}, false, nil
		}
		if err := r.call(); err != nil {
			return Mapping{}, false, err
		}
		if r.answer.mapped == 0 {
			r.last = true
			return Mapping{}, false, nil
		}
	}
	e := r.answer.extents[r.used]
	r.used++
	r.at = max(r.at, int64(e.logical+e.length))
	r.last = r.last || e.flags&Last != 0
	return Mapping{Range{int64(e.logical), int64(e.length)}, int64(e.physical), e.flags}, true, nil
}

// call asks the kernel for the mappings from r.at on.
func (r *Reader) call() error {
	r.used = 0
	m := &r.answer
	m.start, m.length, m.count, m.flags, m.mapped = uint64(r.at), uint64(r.size-r.at), perCall, 0, 0
	err := pool.RetryEINTR(func() error {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, r.file.Fd(), fiemapCall, uintptr(unsafe.Pointer(m))); errno != 0 {
			return errno
		}
		return nil
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) {
		err = ErrNoFIEMAP
	}
	m.mapped = min(m.mapped, perCall)
	return err
}

// Each calls do with each mapping of the file below size, in their order. ok is false on a filesystem without FIEMAP. It takes no memory for
// each mapping, of which a file that a pod writes may have millions.
func Each(f *os.File, size int64, do func(Mapping) error) (ok bool, err error) {
	for r := NewReader(f, 0, size); ; {
		m, more, err := r.Next()
		switch {
		case errors.Is(err, ErrNoFIEMAP):
			return false, nil
		case err != nil:
			return false, err
		case !more:
			return true, nil
		}
		if err := do(m); err != nil {
			return true, err
		}
	}
}

// Of returns the mappings of the file below size. ok is false on a filesystem without FIEMAP.
func Of(f *os.File, size int64) (found []Mapping, ok bool, err error) {
	ok, err = Each(f, size, func(m Mapping) error {
		found = append(found, m)
		return nil
	})
	return found, ok, err
}

// EachHole calls do with each unallocated part of the file below size, in their order; do may allocate it. It does not use SEEK_HOLE, which
// reports reserved but unwritten blocks as holes. Without FIEMAP the whole file is one hole.
func EachHole(f *os.File, size int64, do func(Range) error) error {
	at := int64(0)
	ok, err := Each(f, size, func(m Mapping) error {
		hole := Range{at, min(m.Start, size) - at}
		at = max(at, m.End())
		if hole.Length > 0 {
			return do(hole)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !ok:
		return do(Range{0, size})
	case at < size:
		return do(Range{at, size - at})
	}
	return nil
}

// Holes returns the holes of EachHole.
func Holes(f *os.File, size int64) (found []Range, err error) {
	err = EachHole(f, size, func(hole Range) error {
		found = append(found, hole)
		return nil
	})
	return found, err
}

// Written returns how many bytes of the file below size hold data; everything else reads as zeros. It does not use
// SEEK_DATA, which reports unwritten blocks as data while zeros that were read from them are in the page cache. Without
// FIEMAP all of the file may.
func Written(f *os.File, size int64) (total int64, err error) {
	// The sync allocates blocks for data that is still in the page cache.
	if err := f.Sync(); err != nil {
		return 0, err
	}
	ok, err := Each(f, size, func(m Mapping) error {
		if m.Flags&Unwritten == 0 && m.Start < size {
			total += min(m.Length, size-m.Start)
		}
		return nil
	})
	if err != nil || !ok {
		return size, err
	}
	return total, nil
}
