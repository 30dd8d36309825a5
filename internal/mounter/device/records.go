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

// Records stores in a folder of this node which disk each staged volume is, and where it is staged. The orchestrator sends that when a
// volume is staged; later requests have only the volume's id. A record stays over restarts of the program and the machine. Like any name
// it is only a hint: the disk must prove its identity, and the mount must be there. A nil *Records stores nothing.
type Records struct {
	dir string
	// placesOnly leaves the disk out.
	placesOnly bool
}

// NewRecords returns the records in a folder, which the first Remember makes. The folder must stay when the container is
// replaced, as that of the socket does.
func NewRecords(dir string) *Records { return &Records{dir: dir} }

// NewPlaces is NewRecords for volumes whose ids identify the disk: a record has only where the volume is staged, Recall returns none.
func NewPlaces(dir string) *Records { return &Records{dir: dir, placesOnly: true} }

// record is the content of a file.
type record struct {
	Format int    `json:"format"`
	Volume string `json:"volume"`
	Name   string `json:"name,omitempty"`
	Serial string `json:"serial,omitempty"`

	Encrypted bool `json:"encrypted,omitempty"`

	Place string `json:"place,omitempty"`
}

// identifies reports whether the record has the volume's disk.
func (r record) identifies() bool { return r.Name != "" || r.Serial != "" }

const (
	recordFormat = 1
	recordExt    = ".json"
	maxRecord    = 1 << 16
)

// Remember records durably which disk a volume is and where it is staged, unless the spec has neither a name nor a serial nor a place.
func (r *Records) Remember(spec Spec) error {
	if r == nil {
		return nil
	}
	next := record{recordFormat, spec.Volume, spec.Name, spec.Serial, spec.Encrypted, spec.Place}
	if r.placesOnly {
		next = record{Format: recordFormat, Volume: spec.Volume, Place: spec.Place}
	}
	if !next.identifies() && next.Place == "" {
		return nil
	}
	if known, ok := readRecord(r.path(spec.Volume)); ok && known == next {
		return nil
	}
	data, err := json.Marshal(next)
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

// replaceFile writes a file atomically: after a power loss it has the old or the new content.
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

// Recall returns the recorded disk of a volume. An unreadable record counts as missing.
func (r *Records) Recall(volume string) (Spec, bool) {
	if r == nil {
		return Spec{}, false
	}
	if known, ok := readRecord(r.path(volume)); ok && known.Volume == volume && known.identifies() {
		return known.spec(), true
	}
	return Spec{}, false
}

func (r record) spec() Spec {
	return Spec{Volume: r.Volume, Name: r.Name, Serial: r.Serial, Encrypted: r.Encrypted, Place: r.Place}
}

func readRecord(path string) (record, bool) {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxRecord {
		return record{}, false
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return record{}, false
	}
	var known record
	if json.Unmarshal(data, &known) != nil || known.Format != recordFormat || !known.identifies() && known.Place == "" {
		return record{}, false
	}
	return known, true
}

// Others returns the recorded disks of all other volumes.
func (r *Records) Others(volume string) ([]Spec, error) {
	records, err := r.all()
	var specs []Spec
	for _, known := range records {
		if known.Volume != volume && known.identifies() {
			specs = append(specs, known.spec())
		}
	}
	return specs, err
}

// Places returns where the recorded volumes are staged, by volume.
func (r *Records) Places() (map[string]string, error) {
	records, err := r.all()
	places := map[string]string{}
	for _, known := range records {
		if known.Place != "" {
			places[known.Volume] = known.Place
		}
	}
	return places, err
}

// all returns the records that can be read.
func (r *Records) all() ([]record, error) {
	if r == nil {
		return nil, nil
	}
	files, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what disks the volumes are: %w: %w", fault.Unavailable, err)
	}
	var records []record
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), recordExt) {
			continue
		}
		if known, ok := readRecord(filepath.Join(r.dir, f.Name())); ok {
			records = append(records, known)
		}
	}
	return records, nil
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

// fileOf returns the path of a volume's record. Its name is a hash, because an id may have any characters.
func fileOf(folder, volume, ext string) string {
	sum := sha256.Sum256([]byte(volume))
	return filepath.Join(folder, hex.EncodeToString(sum[:16])+ext)
}

// Formats stores in a folder of this node on which volumes a mkfs has begun. A record is written before the mkfs and removed
// before the first mount, so a record that exists means that a format was interrupted.
//
// With a record the gate may format a disk again only if it is the same disk, in the same boot of this machine, and with the
// same sequence number, which the kernel gives to each appearance of a disk. A record of an earlier boot or attachment, of an
// older disk with the same id, or from a copy of this folder does not match, because the disk may have been in use elsewhere
// since. A nil *Formats stores nothing.
type Formats struct{ dir string }

// NewFormats returns the format records in a folder, which the first Begin makes.
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

// recordOf returns the record of a format that begins now.
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

// Begun reports whether the volume has a format record, and whether it matches this device and filesystem. An unreadable record
// matches none.
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

// End removes the record durably. Call it before the volume is mounted or bound anywhere.
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
