//go:build e2e

package files

import (
	"cmp"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/extents"
)

// books is the use of a filesystem's space, to the byte.
type books struct {
	// data is what the files occupy, shared blocks counted once, also beyond the ends of the files.
	data int64
	// free is the free space of statfs. other is what the filesystem reports as used for anything but data:
	// directories, extent metadata, and blocks that are reserved or not freed yet.
	free, other int64
}

// total is constant. If it falls, some used space belongs to no file and not to the filesystem.
func (b books) total() int64 { return b.data + b.free + b.other }

// bookkeeper reads the books of the filesystem mounted at home again and again, and finds out when
// they do not balance.
func bookkeeper(home string) func(t *testing.T) (data, other int64) {
	total := int64(-1)
	return func(t *testing.T) (data, other int64) {
		t.Helper()
		b := readBooks(t, home)
		if total < 0 {
			total = b.total()
		}
		if b.total() != total {
			t.Errorf("%d used bytes of the disk are unaccounted for: %+v", total-b.total(), b)
		}
		return b.data, b.other
	}
}

// inventory is what a walk through a filesystem finds.
type inventory struct {
	// blocks is what all files and folders occupy by their own count; data is as in books.
	blocks, data int64
	folders      map[uint64]bool
}

func takeInventory(t *testing.T, home string) inventory {
	t.Helper()
	inv := inventory{folders: map[uint64]bool{}}
	var all []extents.Mapping
	must(t, filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		inv.blocks += st.Blocks * 512
		if d.IsDir() {
			inv.folders[st.Ino] = true
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		// To the end of all files: what is reserved beyond the end of this one counts too.
		places, ok, err := extents.Of(f, math.MaxInt64)
		if !ok && err == nil {
			err = errors.New(path + " cannot be mapped")
		}
		all = append(all, places...)
		return errors.Join(err, f.Close())
	}))
	for _, m := range all {
		if m.Flags&(extents.Unknown|extents.Delayed) != 0 {
			t.Errorf("an extent that is not allocated after a sync: %+v", m)
		}
	}
	inv.data = occupied(all)
	return inv
}

// occupied adds up allocated parts, shared ones once.
func occupied(places []extents.Mapping) (total int64) {
	slices.SortFunc(places, func(a, b extents.Mapping) int { return cmp.Compare(a.Physical, b.Physical) })
	end := int64(0)
	for _, m := range places {
		total += max(0, m.Physical+m.Length-max(end, m.Physical))
		end = max(end, m.Physical+m.Length)
	}
	return total
}

// FIFREEZE and FITHAW.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// readBooks settles everything that the filesystem does in its own time, and counts.
func readBooks(t *testing.T, home string) books {
	t.Helper()
	f, err := os.Open(home)
	must(t, err)
	defer func() { _ = f.Close() }()
	must(t, unix.Syncfs(int(f.Fd())))
	var st unix.Statfs_t
	must(t, unix.Fstatfs(int(f.Fd()), &st))
	if st.Type == unix.XFS_SUPER_MAGIC {
		// It takes the blocks of removed files back in the background, and waits for that only here.
		must(t, unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0))
		must(t, unix.IoctlSetInt(int(f.Fd()), fiThaw, 0))
		must(t, unix.Fstatfs(int(f.Fd()), &st))
	}
	inv := takeInventory(t, home)
	b := books{data: inv.data, free: int64(st.Bavail) * st.Bsize}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC:
		b.other = inv.blocks - inv.data
	case unix.XFS_SUPER_MAGIC:
		b.other = xfsOther(t, f, inv.folders)
	}
	return b
}

// xfsOther asks xfs for the owner of every block, which it knows with rmapbt, and adds up those that
// are no data and not taken from a reserve.
func xfsOther(t *testing.T, f *os.File, folders map[uint64]bool) (other int64) {
	t.Helper()
	type record struct {
		device, flags                   uint32
		physical, owner, offset, length uint64
		_                               [3]uint64
	}
	const (
		getFsmap  = 0xc0c0583b // FS_IOC_GETFSMAP
		ownInodes = 'X'<<32 | 5
		ownInobt  = 'X'<<32 | 4
		ownCow    = 'X'<<32 | 7
		special   = 0x10
		attrFork  = 0x2
		extentMap = 0x4
		most      = 1 << 14
	)
	type header struct {
		iflags, oflags, count, entries uint32
		_                              [6]uint64
		keys                           [2]record
		records                        [most]record
	}
	h := new(header)
	h.count = most
	h.keys[1] = record{device: math.MaxUint32, flags: math.MaxUint32, physical: math.MaxUint64, owner: math.MaxUint64, offset: math.MaxUint64}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getFsmap, uintptr(unsafe.Pointer(h))); errno != 0 {
		t.Fatalf("FS_IOC_GETFSMAP: %v", errno)
	}
	if h.entries == most {
		t.Fatal("the map of the filesystem is longer than expected")
	}
	for _, r := range h.records[:h.entries] {
		switch {
		case r.flags&special == 0:
			if folders[r.owner] || r.flags&(attrFork|extentMap) != 0 {
				other += int64(r.length)
			}
		case r.owner == ownInodes, r.owner == ownInobt, r.owner == ownCow:
			other += int64(r.length)
		}
	}
	return other
}
