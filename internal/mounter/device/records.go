package device

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

// Remember writes down which disk a volume is, durably. A claim with neither name nor serial is
// not written.
func (r *Records) Remember(claim Claim) error {
	if r == nil || (claim.Name == "" && claim.Serial == "") {
		return nil
	}
	if known, ok := r.Recall(claim.Volume); ok && known.Name == claim.Name && known.Serial == claim.Serial && known.Encrypted == claim.Encrypted {
		return nil
	}
	data, err := json.Marshal(record{recordFormat, claim.Volume, claim.Name, claim.Serial, claim.Encrypted})
	if err == nil {
		err = os.MkdirAll(r.dir, 0o700)
	}
	if err == nil {
		err = replaceFile(r.dir, r.path(claim.Volume), data)
	}
	if err != nil {
		return fmt.Errorf("write down which disk volume %s is: %w: %w", claim.Volume, fault.Unavailable, err)
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

// Recall returns what was written down about a volume. A record that cannot be read is none.
func (r *Records) Recall(volume string) (Claim, bool) {
	if r == nil {
		return Claim{}, false
	}
	if claim, ok := readRecord(r.path(volume)); ok && claim.Volume == volume {
		return claim, true
	}
	return Claim{}, false
}

func readRecord(path string) (Claim, bool) {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxRecord {
		return Claim{}, false
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Claim{}, false
	}
	var known record
	if json.Unmarshal(data, &known) != nil || known.Format != recordFormat || (known.Name == "" && known.Serial == "") {
		return Claim{}, false
	}
	return Claim{Volume: known.Volume, Name: known.Name, Serial: known.Serial, Encrypted: known.Encrypted}, true
}

// Others returns what was written down about all volumes but this one.
func (r *Records) Others(volume string) ([]Claim, error) {
	if r == nil {
		return nil, nil
	}
	files, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what disks the volumes are: %w: %w", fault.Unavailable, err)
	}
	var claims []Claim
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), recordExt) {
			continue
		}
		if claim, ok := readRecord(filepath.Join(r.dir, f.Name())); ok && claim.Volume != volume {
			claims = append(claims, claim)
		}
	}
	return claims, nil
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
