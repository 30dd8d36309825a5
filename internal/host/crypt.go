package host

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
)

// Crypt is a dm-crypt mapping with a LUKS header, as sysfs shows it.
type Crypt struct {
	Number uint64
	// Name is the name in device-mapper.
	Name string
	// Kernel is the kernel's name, such as dm-0.
	Kernel string
	// Below are the disks under the mapping that this node still has. A mapping whose disk was detached, or whose creation was
	// interrupted, has none.
	Below []uint64
}

// cryptUUID is the prefix that libcryptsetup gives device-mapper's UUIDs of mappings with a LUKS header.
const cryptUUID = "CRYPT-LUKS"

// CheckDeviceMapper proves that the kernel has device-mapper; fault.ProgramMissing if it has not.
func (s Sysfs) CheckDeviceMapper() error {
	if _, err := os.Stat(filepath.Join(s.dir(), "class/misc/device-mapper")); err == nil {
		return nil
	}
	// Opening its device node makes the kernel load the module, if it is one. An existing node proves nothing: libdevmapper makes
	// it on every machine.
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("this machine has no device-mapper (modprobe dm_mod dm_crypt): %w: %w", fault.ProgramMissing, err)
	}
	return control.Close()
}

// Crypts lists the encrypted mappings of this node, including those of other programs.
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

// Mapped returns the numbers of the devices of device-mapper whose UUID is accepted.
func (s Sysfs) Mapped(accepted func(uuid string) bool) (numbers []uint64) {
	dirs, err := filepath.Glob(filepath.Join(s.dir(), "class/block/dm-*"))
	if err != nil {
		return nil
	}
	for _, dir := range dirs {
		uuid, err := readLine(filepath.Join(dir, "dm/uuid"))
		if err != nil || !accepted(uuid) {
			continue
		}
		if number, err := NumberOf(dir); err == nil {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// HolderPath returns the path in sysfs of a mapping as a holder of a disk.
func (s Sysfs) HolderPath(disk uint64, c Crypt) string {
	return filepath.Join(s.Folder(disk), "holders", c.Kernel)
}

// DiskOf returns the number of the disk under an encrypted mapping, or 0 unless the mapping has exactly one. For any other device
// it returns the device's own number.
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

// Crypt reads the mapping with a number; false if the device is not a mapping.
func (s Sysfs) Crypt(number uint64) (Crypt, bool, error) {
	dir := s.Folder(number)
	id, err := readMapping(dir, "uuid")
	if err != nil || !strings.HasPrefix(id, cryptUUID) {
		return Crypt{}, false, err
	}
	c := Crypt{Number: number}
	if c.Name, err = readMapping(dir, "name"); err != nil || c.Name == "" {
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
			continue // the disk is gone: its link is dangling
		}
		// The name may belong to another disk now, which is not under this mapping.
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

// readMapping reads an attribute of a mapping; "" if it is missing, or if the mapping is being removed. To that the kernel answers EINVAL,
// or EIO if the removal begins during the read (drivers/md/dm-sysfs.c).
func readMapping(dir, attribute string) (string, error) {
	text, err := readLine(filepath.Join(dir, "dm", attribute))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIO) {
		return "", nil
	}
	return text, err
}
