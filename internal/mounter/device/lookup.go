package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// errNoLoop: the image has no loop device.
var errNoLoop = errors.New("no loop device")

// errOtherFile: the loop device has another file than the image.
var errOtherFile = errors.New("attached to another file")

// inode identifies a file, whatever its name.
type inode struct{ dev, ino uint64 }

func inodeOf(name string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return inode{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return inode{st.Dev, st.Ino}, nil
}

// candidate is a loop device whose backing file has the name of a volume's image.
type candidate struct {
	name     string
	unlinked bool // the file was removed from its folder
}

// candidates lists the loop devices that may be a volume's, from sysfs. It opens no device, because another volume's may hang.
func (l *loop) candidates(id pool.ID) ([]candidate, error) {
	disks, err := os.ReadDir(l.sysDir)
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w: %w", fault.Unavailable, err)
	}
	var found []candidate
	for _, disk := range disks {
		if !strings.HasPrefix(disk.Name(), "loop") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(l.sysDir, disk.Name(), "loop", "backing_file"))
		switch {
		case isGone(err), errors.Is(err, unix.ENAMETOOLONG): // no pool's file has such a path
			continue
		case err != nil:
			return nil, fmt.Errorf("list loop devices: %w: %w", fault.Unavailable, err)
		}
		text, unlinked := strings.CutSuffix(strings.TrimSuffix(string(data), "\n"), " (deleted)")
		if filepath.Base(text) == id.ImageName() {
			found = append(found, candidate{disk.Name(), unlinked})
		}
	}
	return found, nil
}

// find opens the loop device of a volume's image for reading, or returns errNoLoop.
func (l *loop) find(ctx context.Context, id pool.ID) (*os.File, error) {
	image, err := inodeOf(l.pool.ImagePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("volume %s is not in the pool: %w: %w", l.pool.Handle(id), fault.NotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w: %w", l.pool.Handle(id), fault.Unavailable, err)
	}
	candidates, err := l.candidates(id)
	if err != nil {
		return nil, err
	}
	var found []*os.File
	for _, c := range candidates {
		// Closing a device that was open for writing makes udev probe it again.
		f, err := l.open(ctx, c.name, os.O_RDONLY, func(f *os.File) error { return standsOn(f, image) })
		if isGone(err) || errors.Is(err, errOtherFile) {
			continue
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open loop device %s of volume %s: %w: %w", c.name, l.pool.Handle(id), fault.Unavailable, err), closeAll(found))
		}
		found = append(found, f)
	}
	switch len(found) {
	case 0:
		return nil, errNoLoop
	case 1:
		return found[0], nil
	}
	var names []string
	for _, f := range found {
		names = append(names, f.Name())
	}
	return nil, errors.Join(fmt.Errorf("volume %s has %d loop devices (%s), which would corrupt it; stop what uses it and detach those that this driver did not make with `losetup -d`: %w",
		l.pool.Handle(id), len(found), strings.Join(names, ", "), fault.Precondition), closeAll(found))
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// standsOn reports whether a file is the backing file of an open loop device, as the kernel says. Names prove nothing: a file can
// have several, and its folder another path in the mount namespace where the device was attached.
func standsOn(f *os.File, image inode) error {
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return err
	}
	if (inode{info.Device, info.Inode}) != image {
		return errOtherFile
	}
	return nil
}

// isGone reports whether an error means that a loop device has no file or was removed.
func isGone(err error) bool {
	return errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist)
}

// open opens a loop device and prepares it, within openBound.
func (l *loop) open(ctx context.Context, name string, flags int, prepare func(*os.File) error) (*os.File, error) {
	return l.guard.open(ctx, name, openBound, func(context.Context) (*os.File, error) {
		f, err := l.openNode(name, flags)
		if err != nil {
			return nil, err
		}
		if err := prepare(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	})
}

// openNode opens the node of a device and makes it if it is missing, because nothing makes new nodes in the /dev of a container.
func (l *loop) openNode(name string, flags int) (*os.File, error) {
	path := filepath.Join(l.devDir, name)
	number, err := l.number(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(number)); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("make device node %s: %w", path, err)
		}
		f, err = os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != number {
		return nil, errors.Join(fmt.Errorf("%s is not the node of that device", path), f.Close())
	}
	return f, nil
}

// number returns the number of a device from sysfs.
func (l *loop) number(name string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(l.sysDir, name, "dev"))
	if err != nil {
		return 0, err
	}
	return host.DeviceNumber(string(data))
}
