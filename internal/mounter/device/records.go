package device

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Records keeps, in a folder of this node, which disk each staged volume is. The orchestrator sends that
// when a volume is staged and never again: everything later names the volume only. A record outlives
// this program and the machine, and it is a hint like any other name: the disk it leads to must prove
// that it is the one. A nil *Records remembers nothing, which is right where the volume's id is enough.
type Records struct{ dir string }

// NewRecords returns the records in a folder, which is made when the first one is written. It must be
// one that outlives the program's container, such as that of its socket.
func NewRecords(dir string) *Records { return &Records{dir: dir} }

// record is the content of a file.
type record struct {
	Format int    `json:"format"`
	Volume string `json:"volume"`
	Name   string `json:"name,omitempty"`
	Serial string `json:"serial,omitempty"`

	Encrypted bool `json:"encrypted,omitempty"`
}

const (
	recordFormat = 1
	recordExt    = ".json"
	maxRecord    = 1 << 16
)

// Remember writes down which disk a volume is, durably. A spec with neither name nor serial is
// not written.
func (r *Records) Remember(spec Spec) error {
	if r == nil || (spec.Name == "" && spec.Serial == "") {
		return nil
	}
	if known, ok := r.Recall(spec.Volume); ok && known.Name == spec.Name && known.Serial == spec.Serial && known.Encrypted == spec.Encrypted {
		return nil
	}
	data, err := json.Marshal(record{recordFormat, spec.Volume, spec.Name, spec.Serial, spec.Encrypted})
	if err == nil {
		err = os.MkdirAll(r.dir, 0o700)
	}
	if err == nil {
		err = replaceFile(r.dir, r.path(spec.Volume), data)
	}
	if err != nil {
		return fmt.Errorf("write down which disk volume %s is: %w: %w", spec.Volume, fault.Unavailable, err)
	}
	return nil
}

// replaceFile writes a file of a folder so that after a power loss it is there as before or as now.
func replaceFile(folder, name string, data []byte) error {
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncFolder(folder)
}

func syncFolder(folder string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Recall returns what was written down about a volume. An unreadable record counts as missing.
func (r *Records) Recall(volume string) (Spec, bool) {
	if r == nil {
		return Spec{}, false
	}
	if spec, ok := readRecord(r.path(volume)); ok && spec.Volume == volume {
		return spec, true
	}
	return Spec{}, false
}

func readRecord(path string) (Spec, bool) {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxRecord {
		return Spec{}, false
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, false
	}
	var known record
	if json.Unmarshal(data, &known) != nil || known.Format != recordFormat || (known.Name == "" && known.Serial == "") {
		return Spec{}, false
	}
	return Spec{Volume: known.Volume, Name: known.Name, Serial: known.Serial, Encrypted: known.Encrypted}, true
}

// Others returns what was written down about all volumes but this one.
func (r *Records) Others(volume string) ([]Spec, error) {
	if r == nil {
		return nil, nil
	}
	files, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what disks the volumes are: %w: %w", fault.Unavailable, err)
	}
	var specs []Spec
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), recordExt) {
			continue
		}
		if spec, ok := readRecord(filepath.Join(r.dir, f.Name())); ok && spec.Volume != volume {
			specs = append(specs, spec)
		}
	}
	return specs, nil
}

// Forget removes the record of a volume. A missing one is no error.
func (r *Records) Forget(volume string) error {
	if r == nil {
		return nil
	}
	if err := os.Remove(r.path(volume)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget which disk volume %s is: %w: %w", volume, fault.Unavailable, err)
	}
	return nil
}

func (r *Records) path(volume string) string { return fileOf(r.dir, volume, recordExt) }

// fileOf names the file of a volume by a hash, because an id may hold whatever the cloud likes.
func fileOf(folder, volume, ext string) string {
	sum := sha256.Sum256([]byte(volume))
	return filepath.Join(folder, hex.EncodeToString(sum[:16])+ext)
}

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
