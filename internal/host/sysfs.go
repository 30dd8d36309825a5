package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Sysfs is the mount point of sysfs; empty means /sys.
type Sysfs string

func (s Sysfs) dir() string { return cmp.Or(string(s), "/sys") }

// Alive reports whether the kernel still has a block device with this number. The kernel gives the number to no other disk while a
// filesystem on it is mounted, so a missing number means that the disk was detached.
func (s Sysfs) Alive(dev uint64) (bool, error) {
	if live, err := s.has(dev, ""); err != nil || !live {
		return live, err
	}
	// An encrypted mapping stays when the disk under it is gone.
	mapping, ok, err := s.Crypt(dev)
	return !ok || len(mapping.Below) > 0, err
}

// loopMajor is the major number of the kernel's loop devices.
const loopMajor = 7

// HasFile reports whether a loop device has a backing file; it is true for any other device. A loop device without one is not a
// disk, and the next file that it gets is another disk.
func (s Sysfs) HasFile(dev uint64) (bool, error) {
	if unix.Major(dev) != loopMajor {
		return true, nil
	}
	return s.has(dev, "loop/backing_file")
}

func (s Sysfs) has(dev uint64, file string) (bool, error) {
	_, err := os.Stat(filepath.Join(s.Folder(dev), file))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, fmt.Errorf("look for block device %d:%d: %w: %w", unix.Major(dev), unix.Minor(dev), fault.Unavailable, err)
}

// Folder returns the folder of a block device in sysfs.
func (s Sysfs) Folder(number uint64) string {
	return filepath.Join(s.dir(), "dev/block", fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number)))
}

// NumberOf returns the number of the block device with this folder in sysfs.
func NumberOf(dir string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		return 0, err
	}
	return DeviceNumber(string(text))
}

// readLine reads a file of sysfs; "" if it is missing.
func readLine(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENXIO) {
		return "", fmt.Errorf("read %s: %w: %w", path, fault.Unavailable, err)
	}
	return strings.TrimSpace(string(text)), nil
}
