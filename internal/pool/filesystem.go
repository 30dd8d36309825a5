package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
)

// checkFilesystem refuses a pool on btrfs.
func (p *Pool) checkFilesystem() error {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(p.dir, &st) }); err != nil {
		return fmt.Errorf("pool %s: %w", p.dir, kindOf(err))
	}
	if st.Type == unix.BTRFS_SUPER_MAGIC {
		return fmt.Errorf("the pool in %s is on btrfs, of which two disks with one filesystem id cannot be mounted on a node; pools are on xfs or ext4: %w", p.dir, fault.PoolUnusable)
	}
	return nil
}

// checkApart refuses a pool on the filesystem of another one: the reservations of one would not count for the
// other. It runs before anything is written into the folder.
func (p *Pool) checkApart() error {
	var others []*Pool
	for _, s := range p.others() {
		if other, ok := s.(*Pool); ok { // only those have a filesystem
			others = append(others, other)
		}
	}
	if len(others) == 0 {
		return nil
	}
	own, err := filesystemOf(p.dir)
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.dir, kindOf(err))
	}
	for _, other := range others {
		theirs, err := filesystemOf(other.dir)
		if err != nil {
			return fmt.Errorf("pool %s: %w", other.dir, kindOf(err))
		}
		if own == theirs {
			return fmt.Errorf("the pool in %s would be on the filesystem of the pool in %s; is its disk mounted? Each pool needs a filesystem of its own: %w",
				p.dir, other.dir, fault.PoolUnusable)
		}
	}
	return nil
}

// filesystemOf returns the device number of the filesystem of a folder. A missing folder is where it would be made.
func filesystemOf(dir string) (uint64, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Stat(dir, &st) })
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		return filesystemOf(filepath.Dir(dir))
	}
	if err != nil {
		return 0, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	return st.Dev, nil
}

// canReflink reports whether the pool in a folder creates snapshots and clones by reflink. Overwriting shared
// blocks needs new ones, which are counted but cannot be reserved. The count holds only if nothing else fills the
// filesystem: the folder has to be its mount point.
func canReflink(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, kindOf(err)
	}
	defer func() { _ = f.Close() }()
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Fstatfs(int(f.Fd()), &st) }); err != nil || st.Type != unix.XFS_SUPER_MAGIC {
		return false, kindOf(err)
	}
	whole, err := isWholeFilesystem(dir)
	if err != nil || !whole {
		return false, kindOf(err)
	}
	x, err := host.ReadXFS(f.Fd())
	if err != nil {
		return false, kindOf(err)
	}
	return x.Reflink, nil
}

// isWholeFilesystem reports whether a folder is a mount point, and of a filesystem's root: not of a
// folder of it, as in a container whose host keeps other files on the same filesystem.
func isWholeFilesystem(dir string) (bool, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false, err
	}
	mounts, err := host.Mounts(host.MountTable)
	if err != nil {
		return false, err
	}
	for _, m := range slices.Backward(mounts) { // the last of several mounts at one place is the visible one
		if m.Mountpoint == dir {
			return m.Root == "/", nil
		}
	}
	return false, nil
}

// space is the size of a filesystem and what an ordinary user can still write, in bytes.
type space struct{ total, free int64 }

func statfs(dir string) (space, error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return space{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	return space{total: int64(st.Blocks) * unit, free: int64(st.Bavail) * unit}, nil
}

// kindOf puts the kind before an error of the filesystem. An error that has one, or is the
// context's, stays as it is.
func kindOf(err error) error {
	kind := error(fault.Unavailable)
	switch {
	case err == nil, fault.Of(err) != fault.None,
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		kind = fault.PoolFull
	case errors.Is(err, unix.EFBIG):
		kind = fault.OutOfRange
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EOPNOTSUPP):
		kind = fault.PoolUnusable
	}
	return fmt.Errorf("%w: %w", kind, err)
}
