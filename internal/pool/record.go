package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// State is the phase of a volume or a snapshot.
type State string

// The states of a record. Under the lock only recover reads a record in state Creating.
const (
	// Creating lasts while one process holds the pool's lock.
	Creating State = "creating"
	Ready    State = "ready"
)

// Pair is a tag: a name with a value.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Record is the metadata of a volume or a snapshot.
type Record struct {
	ID ID `json:"id"`
	// Name is the requested name; unique within the folder.
	Name string `json:"name"`
	// Size is the volume's size in bytes. The image has exactly this many, unless GrowTo is set.
	Size int64 `json:"size"`
	// GrowTo is the target size of a running or interrupted growth; else 0.
	GrowTo  int64     `json:"growTo,omitempty"`
	State   State     `json:"state"`
	Created time.Time `json:"created"`
	// Source is what the content was copied from; empty for a volume that was created blank, and for a
	// snapshot.
	Source string `json:"source,omitempty"`
	// BlockSize is the logical block size of the volume's device. It never changes, also not in a copy: a
	// filesystem that was made on 512 cannot be mounted on 4096. 0 is the kernel's default.
	BlockSize int `json:"blockSize,omitempty"`
	// Volume, of a snapshot, is its source volume, which may be deleted.
	Volume ID     `json:"volume,omitempty"`
	Tags   []Pair `json:"tags,omitempty"`
}

// reserved returns how many bytes the record reserves.
func (r Record) reserved() int64 { return max(r.Size, r.GrowTo) }

// Tag returns the value of a tag, or "".
func (r Record) Tag(name string) string {
	for _, t := range r.Tags {
		if t.Name == name {
			return t.Value
		}
	}
	return ""
}

// document is a record with its format number, as stored on disk. A change of the fields raises the number.
type document struct {
	Format int `json:"format"`
	Record
}

// errNewer is the error for a record of a newer format.
var errNewer = errors.New("written by a newer version")

func (r Record) encode() ([]byte, error) {
	data, err := json.Marshal(document{Format: format, Record: r})
	if err != nil {
		return nil, err
	}
	if len(data) >= maxMetaLen {
		// readFile would refuse it.
		return nil, fmt.Errorf("the record of %.200q with its tags has %d bytes, the maximum is %d: %w", r.Name, len(data), maxMetaLen, fault.InvalidArgument)
	}
	return append(data, '\n'), nil
}

// decodeRecord reads the record of an object and refuses everything that encode cannot have written.
// Of a record that only a newer version can read, errNewer, it returns the name.
func decodeRecord(ref objectRef, data []byte) (Record, error) {
	var d document
	// A field whose type has changed is an error too, but the others are read.
	err := json.Unmarshal(data, &d)
	if d.Format > format {
		return Record{ID: ref.id, Name: d.Name}, fmt.Errorf("format %d, this program knows %d: %w", d.Format, format, errNewer)
	}
	if err != nil {
		return Record{}, err
	}
	r := d.Record
	switch {
	case d.Format != format:
		return Record{}, fmt.Errorf("format %d, this program knows %d", d.Format, format)
	case r.ID != ref.id:
		return Record{}, fmt.Errorf("it is the record of %q", r.ID)
	case ref.isSnapshot() != (r.Volume != "") || !idOrNone(r.Volume):
		return Record{}, fmt.Errorf("it is the record of a snapshot of volume %q", r.Volume)
	case !sizeOK(r.Size):
		return Record{}, fmt.Errorf("impossible size %d", r.Size)
	case r.GrowTo != 0 && (!sizeOK(r.GrowTo) || r.GrowTo <= r.Size || r.State != Ready || ref.isSnapshot()):
		return Record{}, fmt.Errorf("impossible growth from %d to %d in state %q", r.Size, r.GrowTo, r.State)
	case r.BlockSize != 0 && r.BlockSize != sharedBlock:
		return Record{}, fmt.Errorf("impossible block size %d", r.BlockSize)
	case r.State != Creating && r.State != Ready:
		return Record{}, fmt.Errorf("unknown state %q", r.State)
	}
	if _, _, err := parseSource(r.Source); err != nil {
		return Record{}, err
	}
	return r, checkName(r.Name)
}

func idOrNone(id ID) bool {
	_, err := ParseID(string(id))
	return id == "" || err == nil
}

func sizeOK(size int64) bool {
	return size >= SmallestVolume && size <= LargestVolume && size%SizeStep == 0
}

// maxNameLen bounds a name far above what CSI allows.
const maxNameLen = 1024

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("empty name")
	case len(name) > maxNameLen:
		return fmt.Errorf("name of %d bytes is longer than %d", len(name), maxNameLen)
	case !utf8.ValidString(name):
		// JSON replaces invalid bytes, so two names could become equal.
		return fmt.Errorf("name %q is not UTF-8", name)
	}
	return nil
}

// readFile reads a small regular file. It does not follow a symbolic link.
func readFile(name string) ([]byte, error) {
	// O_NONBLOCK: the open of a pipe must not block.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxMetaLen+1))
	if err == nil && len(data) > maxMetaLen {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxMetaLen)
	}
	return data, err
}
