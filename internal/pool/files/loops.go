package files

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// LoopsBelow returns the names of the loop devices that the filesystem of a folder lies on, directly or below partitions and
// device-mapper. sysDir is where the kernel lists block devices; empty means /sys/block.
func LoopsBelow(dir, sysDir string) ([]string, error) {
	sys := filepath.Dir(cmp.Or(sysDir, defaultSys))
	var st unix.Stat_t
	err := pool.RetryEINTR(func() error { return unix.Stat(dir, &st) })
	var found []string
	if err == nil {
		found, err = loopsBelow(filepath.Join(sys, "dev/block", fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))))
	}
	if err != nil {
		return nil, fmt.Errorf("find the disk of pool %s: %w", dir, pool.KindOf(err))
	}
	return found, nil
}

// loopsBelow returns the loop devices that a device in sysfs is or stands on; nothing for one that has no disk, such as tmpfs.
func loopsBelow(device string) ([]string, error) {
	device, err := filepath.EvalSymlinks(device)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(device, "partition")); err == nil {
		device = filepath.Dir(device)
	}
	if name := filepath.Base(device); strings.HasPrefix(name, "loop") {
		return []string{name}, nil
	}
	slaves, err := filepath.Glob(filepath.Join(device, "slaves/*"))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, slave := range slaves {
		below, err := loopsBelow(slave)
		if err != nil {
			return nil, err
		}
		found = append(found, below...)
	}
	return found, nil
}

// Backing is the file that a pool's filesystem lies in.
type Backing struct {
	// File is its path; empty: the filesystem is on a disk.
	File string
	Size int64
	// Missing is how many bytes of it have no space of their own.
	Missing int64
	// Hidden: the file is not where this process sees it, as in a container that has the pool alone.
	Hidden bool
}

// BackingOf returns the file below a pool, of several that which lacks most.
func BackingOf(cfg pool.Config) (Backing, error) {
	var found Backing
	if _, group := cfg.Group(); group {
		return found, nil
	}
	below, err := LoopsBelow(cfg.Dir, cfg.SysDir)
	if err != nil {
		return found, err
	}
	for _, name := range below {
		b, err := backingOf(filepath.Join(cmp.Or(cfg.SysDir, defaultSys), name))
		if err != nil {
			return found, fmt.Errorf("look at the file below pool %s: %w", cfg.Dir, pool.KindOf(err))
		}
		if found.File == "" || b.Missing > found.Missing {
			found = b
		}
	}
	return found, nil
}

func backingOf(loop string) (Backing, error) {
	text, err := os.ReadFile(filepath.Join(loop, "loop/backing_file"))
	if err != nil {
		return Backing{}, err
	}
	b := Backing{File: strings.TrimSuffix(string(text), "\n")}
	st, err := os.Lstat(b.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.Hidden = true
	case err != nil:
		return Backing{}, err
	case st.Mode().IsRegular(): // a disk has all of its space
		size, allocated, err := sizes(b.File)
		b.Size, b.Missing = size, max(0, size-allocated)
		return b, err
	}
	return b, nil
}
