package device

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Formats keeps, in a folder of this node, which volumes a mkfs has begun on. A record is written before the mkfs and
// removed before the first mount, so one that is there says that a format was cut off.
//
// It lets the gate format again only the disk that it is about, as it was then: of the same identity, of the same boot of
// this machine, and with the kernel's sequence number of that very appearance of the disk. A record of an earlier boot, of an
// earlier attachment, of an older disk of the same id or from a copy of this machine's folder matches nothing: while
// nobody watched, the disk may have been in use elsewhere. A nil *Formats remembers nothing.
type Formats struct{ dir string }

// NewFormats returns the format records in a folder, which is made when the first one is written.
func NewFormats(dir string) *Formats { return &Formats{dir: dir} }

// formatRecord is the content of a file.
type formatRecord struct {
	Format     int    `json:"format"`
	Volume     string `json:"volume"`
	Serial     string `json:"serial,omitempty"`
	Filesystem string `json:"filesystem"`
	Boot       string `json:"boot"`
	Sequence   uint64 `json:"sequence"`
}

const (
	formatRecordFormat = 1
	formatRecordExt    = ".format"
	bootID             = "/proc/sys/kernel/random/boot_id"
)

// recordOf describes a format that begins now.
func recordOf(dev *Device, filesystem string) (formatRecord, error) {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return formatRecord{}, fmt.Errorf("read the id of this boot: %w: %w", fault.Unavailable, err)
	}
	c := dev.Spec()
	return formatRecord{
		formatRecordFormat, c.Volume, cmp.Or(c.Serial, c.Name), filesystem, strings.TrimSpace(string(boot)), sequenceOf(dev.file),
	}, nil
}

// sequenceOf returns the number that the kernel gives to each appearance of a disk, once in a boot; 0 before Linux 5.15.
func sequenceOf(f *os.File) (number uint64) {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKGETDISKSEQ, uintptr(unsafe.Pointer(&number))); errno != 0 {
		return 0
	}
	return number
}

// Begin records durably that a format of the device begins.
func (f *Formats) Begin(dev *Device, filesystem string) error {
	if f == nil {
		return nil
	}
	record, err := recordOf(dev, filesystem)
	if err != nil {
		return err
	}
	data, err := json.Marshal(record)
	if err == nil {
		err = os.MkdirAll(f.dir, 0o700)
	}
	if err == nil {
		err = replaceFile(f.dir, f.path(record.Volume), data)
	}
	if err != nil {
		return fmt.Errorf("record the format of volume %s: %w: %w", record.Volume, fault.Unavailable, err)
	}
	return nil
}

// Begun reports whether a format of the volume is on record, and whether it is one of this very device and filesystem. A
// record that makes no sense is of no device.
func (f *Formats) Begun(dev *Device, filesystem string) (onRecord, ofDevice bool, err error) {
	if f == nil {
		return false, false, nil
	}
	volume := dev.Spec().Volume
	data, err := os.ReadFile(f.path(volume))
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	now, nowErr := recordOf(dev, filesystem)
	if err := errors.Join(err, nowErr); err != nil {
		return false, false, fmt.Errorf("read the record of the format of volume %s: %w: %w", volume, fault.Unavailable, err)
	}
	var known formatRecord
	return true, json.Unmarshal(data, &known) == nil && known == now && now.Sequence != 0 && now.Boot != "", nil
}

// End removes the record durably. Nothing of the volume may be mounted or handed out before.
func (f *Formats) End(volume string) error {
	if f == nil {
		return nil
	}
	err := os.Remove(f.path(volume))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncFolder(f.dir)
	}
	if err != nil {
		return fmt.Errorf("remove the record of the format of volume %s: %w: %w", volume, fault.Unavailable, err)
	}
	return nil
}

func (f *Formats) path(volume string) string { return fileOf(f.dir, volume, formatRecordExt) }
