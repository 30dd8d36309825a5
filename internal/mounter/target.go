package mounter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// CheckTarget refuses a path that is relative, not clean, or leads through a symbolic link: what
// is mounted or removed must be where the caller says. Parts that do not exist are fine.
func CheckTarget(path string) error {
	switch {
	case !strings.HasPrefix(path, "/") || path == "/":
		return fmt.Errorf("path %q is not an absolute path below /: %w", path, fault.InvalidArgument)
	case path != filepath.Clean(path) || strings.ContainsRune(path, 0):
		return fmt.Errorf("path %q is not in its shortest form (no .., no //, no / at the end): %w", path, fault.InvalidArgument)
	}
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		info, err := os.Lstat(path[:i])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ENOTDIR):
			return fmt.Errorf("path %q cannot exist: %w: %w", path, fault.InvalidArgument, err)
		case err != nil && i == len(path):
			return nil // a dead mount cannot be looked at, but can be unmounted
		case err != nil:
			return fmt.Errorf("look at %s: %w: %w", path[:i], fault.Unavailable, err)
		case info.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("path %q leads through the symbolic link %s: %w", path, path[:i], fault.InvalidArgument)
		}
	}
	return nil
}

// mostStacked is how many mounts on top of each other at one path Unmount takes down.
const mostStacked = 8

// Flush writes everything of the filesystem that is mounted at path to its device: an unmount does so only where no
// other mount of that filesystem is left. A path where no filesystem is mounted needs nothing.
func (m *Mounter) Flush(path string) error {
	at, ok, err := topmost(path)
	if err != nil || !ok {
		return err
	}
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return nil // the node of a block volume
	}
	if err == nil {
		err = errors.Join(unix.Syncfs(dir), unix.Close(dir))
	}
	if err != nil {
		return fmt.Errorf("write what is cached of %s at %s: %w: %w", at.Source, path, fault.Unavailable, err)
	}
	return nil
}

// Unmount unmounts path. A path where nothing is mounted is no error; a mount that is in use stays
// as it is and is fault.Busy.
func (m *Mounter) Unmount(ctx context.Context, path string) error {
	for range mostStacked {
		if err := m.UnmountTop(ctx, path); err != nil {
			return err
		}
		if _, ok, err := topmost(path); err != nil || !ok {
			return err
		}
	}
	return fmt.Errorf("unmount %s: %w: more than %d mounts are stacked there", path, fault.Precondition, mostStacked)
}

// UnmountTop is Unmount for the topmost mount at path only: what that one covers may be somebody else's.
func (m *Mounter) UnmountTop(ctx context.Context, path string) error {
	if err := CheckTarget(path); err != nil {
		return err
	}
	if _, ok, err := topmost(path); err != nil || !ok {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("unmount %s: %w: %w", path, fault.Unavailable, err)
	}
	switch err := unmountNow(ctx, path); {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("unmount %s: %w: a process still uses files in it (fuser -m shows which): %w", path, fault.Busy, err)
	case err != nil:
		return fmt.Errorf("unmount %s: %w: %w", path, fault.Unavailable, err)
	}
	return nil
}

// mostBusy is how often a mount that is in use is believed to be so for a moment only: somebody
// measures how full it is, or looks at every mount of the machine, as Holders does.
const mostBusy = 10

// unmountNow unmounts what is topmost at path.
func unmountNow(ctx context.Context, path string) error {
	for try := 1; ; try++ {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if !errors.Is(err, unix.EBUSY) || try == mostBusy {
			return err
		}
		pause := time.NewTimer(busyPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

const busyPause = 20 * time.Millisecond

// RemoveTarget removes an unmounted directory or file that is empty. A missing one is no error.
// Nothing is ever removed from inside a directory: what is there belongs to somebody.
func (m *Mounter) RemoveTarget(path string) error {
	if err := CheckTarget(path); err != nil {
		return err
	}
	refuse := func(why string) error {
		return fmt.Errorf("remove %s: %w: %s", path, fault.Precondition, why)
	}
	if _, ok, err := topmost(path); err != nil || ok {
		if err != nil {
			return err
		}
		return refuse("something is mounted there")
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove %s: %w: %w", path, fault.Unavailable, err)
	case info.IsDir():
		err = unix.Rmdir(path)
	case info.Mode().IsRegular() && info.Size() == 0:
		err = unix.Unlink(path)
	case info.Mode().IsRegular():
		return refuse("it is a file that is not empty; look at it and move it away by hand")
	default:
		return refuse("it is neither a directory nor a plain file")
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return refuse("the directory is not empty; look at what is in it and move that away by hand")
	case errors.Is(err, unix.EBUSY):
		return refuse("something is mounted there in another mount namespace or it is in use")
	}
	return fmt.Errorf("remove %s: %w: %w", path, fault.Unavailable, err)
}

// ensureDir makes the directory at path, or takes an empty one that is there. made says which.
func ensureDir(path string) (made bool, err error) {
	switch err := os.Mkdir(path, 0o750); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(path, 0o750); err != nil {
			return false, fmt.Errorf("make directory %s: %w: %w", path, fault.Unavailable, err)
		}
		return true, nil
	case !errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("make directory %s: %w: %w", path, fault.Unavailable, err)
	}
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return false, fmt.Errorf("%s is not a directory: %w", path, fault.Conflict)
	case err != nil:
		return false, fmt.Errorf("look into %s: %w: %w", path, fault.Unavailable, err)
	case len(entries) > 0:
		// A mount would hide them, and whoever put them there would think they were saved.
		return false, fmt.Errorf("%s holds files that a mount would hide (%s, ...): %w", path, entries[0].Name(), fault.Conflict)
	}
	return false, nil
}

// ensureFile makes the empty file at path, or takes an empty one that is there.
func ensureFile(path string) (made bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return false, fmt.Errorf("make directory %s: %w: %w", filepath.Dir(path), fault.Unavailable, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o640)
	switch {
	case err == nil:
		return true, f.Close()
	case !errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("make file %s: %w: %w", path, fault.Unavailable, err)
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return false, fmt.Errorf("look at %s: %w: %w", path, fault.Unavailable, err)
	case !info.Mode().IsRegular() || info.Size() > 0:
		return false, fmt.Errorf("%s is not an empty file: %w", path, fault.Conflict)
	}
	return false, nil
}
