package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
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
func (s Sysfs) CheckDeviceMapper() error {
	if _, err := os.Stat(filepath.Join(s.dir(), "class/misc/device-mapper")); err == nil {
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
func (s Sysfs) Crypts() ([]Crypt, error) {
	dirs, err := filepath.Glob(filepath.Join(s.dir(), "class/block/dm-*"))
	if err != nil {
		return nil, err
	}
	var all []Crypt
	for _, dir := range dirs {
		number, err := NumberOf(dir)
		if err != nil {
			continue // gone by now
		}
		c, ok, err := s.Crypt(number)
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
func (s Sysfs) HolderPath(disk uint64, c Crypt) string {
	return filepath.Join(s.Folder(disk), "holders", c.Kernel)
}

// DiskOf returns the number of the disk below an encrypted mapping, 0 for one whose disk has gone, and any other
// device's own number.
func (s Sysfs) DiskOf(number uint64) (uint64, error) {
	switch c, ok, err := s.Crypt(number); {
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

// Crypt reads the mapping of a number; false if the device is none.
func (s Sysfs) Crypt(number uint64) (Crypt, bool, error) {
	dir := s.Folder(number)
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
		below, err := NumberOf(slave)
		if err != nil {
			continue // the link of a disk that has gone leads nowhere
		}
		// The name may have passed to another disk, which this mapping does not hold.
		held, err := s.has(below, filepath.Join("holders", c.Kernel))
		if err != nil {
			return Crypt{}, false, err
		}
		if held && !slices.Contains(c.Below, below) {
			c.Below = append(c.Below, below)
		}
	}
	return c, true, nil
}
