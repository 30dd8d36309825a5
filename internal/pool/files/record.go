package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// document is a record with its format number, as stored on disk. A change of the fields raises the number.
type document struct {
	Format int `json:"format"`
	pool.Record
}

// errNewer is the error for a record of a newer format.
var errNewer = errors.New("written by a newer version")

func encode(r pool.Record) ([]byte, error) {
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
func decodeRecord(ref pool.Ref, data []byte) (pool.Record, error) {
	var d document
	// A field whose type has changed is an error too, but the others are read.
	err := json.Unmarshal(data, &d)
	if d.Format > format {
		return pool.Record{ID: ref.ID, Name: d.Name}, fmt.Errorf("format %d, this program knows %d: %w", d.Format, format, errNewer)
	}
	if err != nil {
		return pool.Record{}, err
	}
	r := d.Record
	switch {
	case d.Format != format:
		return pool.Record{}, fmt.Errorf("format %d, this program knows %d", d.Format, format)
	case r.ID != ref.ID:
		return pool.Record{}, fmt.Errorf("it is the record of %q", r.ID)
	case ref.IsSnapshot() != (r.Volume != "") || !idOrNone(r.Volume):
		return pool.Record{}, fmt.Errorf("it is the record of a snapshot of volume %q", r.Volume)
	case !sizeOK(r.Size):
		return pool.Record{}, fmt.Errorf("impossible size %d", r.Size)
	case r.GrowTo != 0 && (!sizeOK(r.GrowTo) || r.GrowTo <= r.Size || r.State != pool.Ready || ref.IsSnapshot()):
		return pool.Record{}, fmt.Errorf("impossible growth from %d to %d in state %q", r.Size, r.GrowTo, r.State)
	case r.BlockSize != 0 && r.BlockSize != sharedBlock:
		return pool.Record{}, fmt.Errorf("impossible block size %d", r.BlockSize)
	case r.State != pool.Creating && r.State != pool.Ready:
		return pool.Record{}, fmt.Errorf("unknown state %q", r.State)
	}
	if _, err := pool.ParseSource(r.Source); err != nil {
		return pool.Record{}, err
	}
	return r, pool.CheckObjectName(r.Name)
}

func idOrNone(id pool.ID) bool {
	_, err := pool.ParseID(string(id))
	return id == "" || err == nil
}

func sizeOK(size int64) bool {
	return size >= pool.SmallestVolume && size <= pool.LargestVolume && size%pool.SizeStep == 0
}

// reservedBy returns how many bytes the record reserves.
func reservedBy(r pool.Record) int64 { return max(r.Size, r.GrowTo) }

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
