package mounter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
)

// Crypt is a mapping of dm-crypt on a LUKS header, as sysfs has it.
type Crypt struct {
	Number uint64
	// Name is device-mapper's.
	Name string
	// Kernel is the kernel's name, such as dm-0.
	Kernel string
	// Below are the disks that it stands on and that are still in this machine. A mapping whose disk was taken away,
	// or whose making was interrupted, has none.
	Below []uint64
}

// cryptUUID is how libcryptsetup begins device-mapper's id of the mappings on a disk with a LUKS header.
const cryptUUID = "CRYPT-LUKS"

// CheckDeviceMapper proves that the kernel has device-mapper; fault.ProgramMissing where it has none.
func (m *Mounter) CheckDeviceMapper() error {
	if _, err := os.Stat(filepath.Join(m.sysDir, "class/misc/device-mapper")); err == nil {
		return nil
	}
	// Opening its node makes the kernel load it where it is a module. A node that is there proves nothing: libdevmapper makes
	// it on every machine.
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("this machine has no device-mapper (modprobe dm_mod dm_crypt): %w: %w", fault.ProgramMissing, err)
	}
	return control.Close()
}

// Crypts lists the encrypted mappings of this machine, those of other programs too.
func (m *Mounter) Crypts() ([]Crypt, error) {
	dirs, err := filepath.Glob(filepath.Join(m.sysDir, "class/block/dm-*"))
	if err != nil {
		return nil, err
	}
	var all []Crypt
	for _, dir := range dirs {
		number, err := numberOf(dir)
		if err != nil {
			continue // gone by now
		}
		c, ok, err := m.crypt(number)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, c)
		}
	}
	return all, nil
}

// HolderPath is how Holders names a mapping on the disk of that number.
func (m *Mounter) HolderPath(disk uint64, c Crypt) string {
	return filepath.Join(m.sysfs(disk), "holders", c.Kernel)
}

// DiskOf returns the number of the disk below an encrypted mapping, 0 for one whose disk has gone, and any other
// device's own number.
func (m *Mounter) DiskOf(number uint64) (uint64, error) {
	switch c, ok, err := m.crypt(number); {
	case err != nil:
		return 0, err
	case !ok:
		return number, nil
	case len(c.Below) != 1:
		return 0, nil
	default:
		return c.Below[0], nil
	}
}

// crypt reads the mapping of a number; false if the device is none.
func (m *Mounter) crypt(number uint64) (Crypt, bool, error) {
	dir := m.sysfs(number)
	id, err := readLine(filepath.Join(dir, "dm/uuid"))
	if err != nil || !strings.HasPrefix(id, cryptUUID) {
		return Crypt{}, false, err
	}
	c := Crypt{Number: number}
	if c.Name, err = readLine(filepath.Join(dir, "dm/name")); err != nil {
		return Crypt{}, false, err
	}
	target, err := os.Readlink(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Crypt{}, false, nil
	}
	if err != nil {
		return Crypt{}, false, fmt.Errorf("read %s: %w: %w", dir, fault.Unavailable, err)
	}
	c.Kernel = filepath.Base(target)
	slaves, err := filepath.Glob(filepath.Join(dir, "slaves/*"))
	if err != nil {
		return Crypt{}, false, err
	}
	for _, slave := range slaves {
		below, err := numberOf(slave)
		if err != nil {
			continue // the link of a disk that has gone leads nowhere
		}
		// The name may have passed to another disk, which this mapping does not hold.
		held, err := m.inSysfs(below, filepath.Join("holders", c.Kernel))
		if err != nil {
			return Crypt{}, false, err
		}
		if held && !slices.Contains(c.Below, below) {
			c.Below = append(c.Below, below)
		}
	}
	return c, true, nil
}

// sysfs is the folder of a block device in sysfs.
func (m *Mounter) sysfs(number uint64) string {
	return filepath.Join(m.sysDir, "dev/block", fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number)))
}

// numberOf reads the number of the block device whose folder in sysfs this is.
func numberOf(dir string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		return 0, err
	}
	return host.DeviceNumber(string(text))
}

// readLine reads a file of sysfs; nothing where it is missing.
func readLine(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENXIO) {
		return "", fmt.Errorf("read %s: %w: %w", path, fault.Unavailable, err)
	}
	return strings.TrimSpace(string(text)), nil
}
