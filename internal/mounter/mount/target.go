package mount

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// folder is kubelet's folder.
type folder string

// target is a path below kubelet's folder with an open descriptor of its parent. Operations through the target act in that parent,
// even if a part of the path is replaced meanwhile.
type target struct {
	path string
	dir  int
	name string
}

// open resolves a path without following symbolic links below kubelet's folder. The caller closes it. fs.ErrNotExist without the
// parent.
func (f folder) open(path string) (target, error) {
	if !strings.HasPrefix(path, "/") || path == "/" || path != filepath.Clean(path) || strings.ContainsRune(path, 0) {
		return target{}, fmt.Errorf("path %q is not an absolute path below / in its shortest form (no .., no //, no / at the end): %w",
			path, fault.InvalidArgument)
	}
	below, ok := strings.CutPrefix(path, strings.TrimSuffix(string(f), "/")+"/")
	if !ok {
		return target{}, fmt.Errorf("path %q is not below the kubelet's folder %s (--kubelet-dir): %w", path, f, fault.InvalidArgument)
	}
	root, err := unix.Open(string(f), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return target{}, fmt.Errorf("open the kubelet's folder %s: %w: %w", f, fault.Unavailable, err)
	}
	defer func() { _ = unix.Close(root) }()
	dir, err := unix.Openat2(root, filepath.Dir(below), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case err == nil:
		return target{path: path, dir: dir, name: filepath.Base(below)}, nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return target{}, fmt.Errorf("path %q leads through a symbolic link: %w", path, fault.InvalidArgument)
	case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ENOTDIR):
		return target{}, fmt.Errorf("path %q cannot exist: %w: %w", path, fault.InvalidArgument, err)
	}
	return target{}, fmt.Errorf("open the folder of %s: %w: %w", path, fault.Unavailable, err)
}

func (t target) close() { _ = unix.Close(t.dir) }

// CheckPath refuses a path that is not below kubelet's folder, not clean, or has a symbolic link, so that a mount or a removal
// happens at this path. Parts that do not exist are allowed.
func (f folder) CheckPath(path string) error {
	t, err := f.open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.close()
	var st unix.Stat_t
	switch err := unix.Fstatat(t.dir, t.name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENAMETOOLONG):
		return fmt.Errorf("path %q cannot exist: %w: %w", path, fault.InvalidArgument, err)
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return fmt.Errorf("path %q is a symbolic link: %w", path, fault.InvalidArgument)
	}
	return nil // a dead mount cannot be looked at, but can be unmounted
}

// realPath returns a path as in the mount table: with the symbolic links to kubelet's folder resolved.
func (f folder) realPath(path string) string {
	below, ok := strings.CutPrefix(path, string(f)+"/")
	if !ok || f == "/" {
		return path
	}
	real, err := filepath.EvalSymlinks(string(f))
	if err != nil {
		return path
	}
	return filepath.Join(real, below)
}

// mountID returns the kernel's id of the mount that is topmost at the target. It does not
// touch the filesystem, so it works for dead mounts.
func (t target) mountID() (int, error) {
	fd, err := unix.Openat(t.dir, t.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w: %w", t.path, fault.Unavailable, err)
	}
	defer func() { _ = unix.Close(fd) }()
	return mountID(fd)
}

// mountID returns the id of the mount that an open file is on.
func mountID(fd int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, fmt.Errorf("read the id of a mount: %w: %w", fault.Unavailable, err)
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, fmt.Errorf("read the id of a mount: the kernel reports none: %w", fault.Unavailable)
}

// ensureDir makes the directory or accepts an empty one on which nothing is mounted. made reports whether it made it.
func (t target) ensureDir() (made bool, err error) {
	switch err := unix.Mkdirat(t.dir, t.name, 0o750); {
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("make directory %s: %w: %w", t.path, fault.Unavailable, err)
	}
	if err := t.free(); err != nil {
		return false, err
	}
	fd, err := unix.Openat(t.dir, t.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return false, fmt.Errorf("%s is not a directory: %w", t.path, fault.Conflict)
	case err != nil:
		return false, fmt.Errorf("look into %s: %w: %w", t.path, fault.Unavailable, err)
	}
	dir := os.NewFile(uintptr(fd), t.path)
	defer func() { _ = dir.Close() }()
	switch names, err := dir.Readdirnames(1); {
	case len(names) > 0:
		// A mount would hide the files, and the program that wrote them would think that they are on the volume.
		return false, fmt.Errorf("%s holds files that a mount would hide (%s, ...): %w", t.path, names[0], fault.Conflict)
	case err != nil && !errors.Is(err, io.EOF):
		return false, fmt.Errorf("look into %s: %w: %w", t.path, fault.Unavailable, err)
	}
	return false, nil
}

// ensureFile makes the empty file or accepts an empty one on which nothing is mounted.
func (t target) ensureFile() (made bool, err error) {
	fd, err := unix.Openat(t.dir, t.name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o640)
	switch {
	case err == nil:
		return true, unix.Close(fd)
	case !errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("make file %s: %w: %w", t.path, fault.Unavailable, err)
	}
	if err := t.free(); err != nil {
		return false, err
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(t.dir, t.name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err != nil:
		return false, fmt.Errorf("look at %s: %w: %w", t.path, fault.Unavailable, err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > 0:
		return false, fmt.Errorf("%s is not an empty file: %w", t.path, fault.Conflict)
	}
	return false, nil
}

// free refuses a target on which something is mounted.
func (t target) free() error {
	id, err := t.mountID()
	if err != nil {
		return err
	}
	around, err := mountID(t.dir)
	if err == nil && id != around {
		err = fmt.Errorf("something was mounted on %s meanwhile: %w", t.path, fault.Busy)
	}
	return err
}

// remove removes what a failed call has made at the target.
func (t target) remove(made bool, cause error) error {
	if !made {
		return cause
	}
	if err := t.removeEmpty(); err != nil {
		return fmt.Errorf("%w (and undoing it: %w)", cause, err)
	}
	return cause
}

// RemoveTarget removes an unmounted directory or file that is empty. A missing one is no error.
// It never removes anything in a directory, which may be data.
func (f folder) RemoveTarget(path string) error {
	t, err := f.open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.close()
	return t.removeEmpty()
}

func (t target) removeEmpty() error {
	refuse := func(why string) error {
		return fmt.Errorf("remove %s: %w: %s", t.path, fault.TargetInUse, why)
	}
	var st unix.Stat_t
	err := unix.Fstatat(t.dir, t.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch kind := st.Mode & unix.S_IFMT; {
	case err != nil:
	case kind == unix.S_IFDIR:
		err = unix.Unlinkat(t.dir, t.name, unix.AT_REMOVEDIR)
	case kind == unix.S_IFREG && st.Size == 0:
		err = unix.Unlinkat(t.dir, t.name, 0)
	case kind == unix.S_IFREG:
		return refuse("it is a file that is not empty; look at it and move it away by hand")
	default:
		return refuse("it is neither a directory nor a plain file")
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return refuse("something is mounted there, or it is in use")
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return refuse("the directory is not empty; look at what is in it and move that away by hand")
	}
	return fmt.Errorf("remove %s: %w: %w", t.path, fault.Unavailable, err)
}
