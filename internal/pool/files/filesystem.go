package files

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// mounted returns the type of the filesystem that is mounted at the pool's folder. A bind mount of one folder of a filesystem, as in
// a container whose host has mounted nothing there, does not count: others write to that filesystem too.
func (p *Pool) mounted(table string) (kind string, err error) {
	dir, err := filepath.EvalSymlinks(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("pool %s: %w", p.dir, pool.KindOf(err))
	}
	mounts, err := host.Mounts(cmp.Or(table, host.MountTable))
	if err != nil {
		return "", fmt.Errorf("pool %s: %w", p.dir, err)
	}
	var device uint64
	for _, m := range mounts { // the last of several mounts at one place is the visible one
		if m.Mountpoint == dir {
			kind, device = "", unix.Mkdev(uint32(m.Major), uint32(m.Minor))
			if m.Root == "/" {
				kind = m.FSType
			}
		}
	}
	switch kind {
	case "xfs", "ext4":
		return kind, p.checkUncovered(dir, device)
	case "":
		return "", fmt.Errorf("no filesystem is mounted at %s; mount a disk, or a file, with an xfs or ext4 of its own there, as docs/quickstart.md shows: %w: %w",
			p.dir, fault.PoolUnusable, pool.ErrNotHere)
	}
	return "", fmt.Errorf("the filesystem at %s is %s; pools are on xfs or ext4: %w", p.dir, kind, fault.PoolUnusable)
}

// checkUncovered refuses a folder that is not on the filesystem mounted there, because a later mount at a folder above covers it. The
// covered filesystem stays in the mount table.
func (p *Pool) checkUncovered(dir string, device uint64) error {
	var st unix.Stat_t
	err := pool.RetryEINTR(func() error { return unix.Stat(dir, &st) })
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.dir, pool.KindOf(err))
	}
	if st.Dev != device {
		return fmt.Errorf("another mount covers the filesystem at %s; mount the pool's disk after it: %w", p.dir, fault.PoolUnusable)
	}
	return nil
}

// canReflink reports whether the pool on a filesystem of this kind creates snapshots and clones by reflink. Overwriting shared
// blocks needs new ones, which are counted but cannot be reserved. The count holds because nothing else fills the
// filesystem.
func canReflink(dir, kind string) (bool, error) {
	if kind != "xfs" {
		return false, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return false, pool.KindOf(err)
	}
	defer func() { _ = f.Close() }()
	x, err := host.ReadXFS(f.Fd())
	if err != nil {
		return false, pool.KindOf(err)
	}
	return x.Reflink, nil
}

// space is the size of a filesystem and what an ordinary user can still write, in bytes.
type space struct{ total, free int64 }

func statfs(dir string) (space, error) {
	var st unix.Statfs_t
	if err := pool.RetryEINTR(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return space{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	return space{total: int64(st.Blocks) * unit, free: int64(st.Bavail) * unit}, nil
}
