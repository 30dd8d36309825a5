package mounter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A marker says "a mkfs for this volume has begun here". It is written and synced before mkfs and
// cleared before the first mount, so a device that carries one and no filesystem that was ever mounted
// holds no data, whatever a killed mkfs left on it.
//
// No single place is safe from every mkfs: mke2fs writes inode tables at the start of every group
// of groups, backups at group starts, the journal in the middle and zeros at the end; mkfs.xfs
// zeroes both ends and writes the headers of all allocation groups and a log in the middle one. So there are
// several copies, and one whole copy is enough. They are at fixed distances from the start, not at
// fractions of the size, because the device may have grown before mkfs is tried again. That enough
// copies live through every mkfs is measured by TestMarkerOutlivesMkfs: of the 3 to 9 copies on
// devices of 16 MiB to 100 GiB every run of mkfs left 3 or more as they were; the worst is
// mkfs.ext4 writing four times the usual number of inode tables at once.
type marker struct {
	volume     string
	filesystem Filesystem
	size       int64 // of the device when the marker was written
}

const (
	// A copy is one sector: no disk tears one, and every filesystem block is at least as large, so
	// a sector that still stands as it was written is part of nothing that mkfs wrote.
	markerSector = 512
	markerMagic  = "cloudblock mkfs\n"

	markerVersion   = 1
	markerMaxVolume = 400
)

// markerPlaces are the distances of the copies from the start of the device. None is round in any
// unit that a filesystem counts in.
var markerPlaces = []int64{
	3*mib + 332*kib, 6*mib + 628*kib, 13*mib + 844*kib, 29*mib + 460*kib, 61*mib + 716*kib,
	117*mib + 588*kib, 235*mib + 884*kib, 467*mib + 212*kib, 933*mib + 356*kib,
}

var (
	errNoMarker  = errors.New("no marker")
	markerCRC    = crc32.MakeTable(crc32.Castagnoli)
	markerHeader = len(markerMagic)
)

// encode makes the copy that belongs at offset. A copy names its own place, so that an image of a
// marked device inside a file is not taken for a marker of the device that holds the file.
func (k marker) encode(offset int64) ([]byte, error) {
	if len(k.volume) == 0 || len(k.volume) > markerMaxVolume || len(k.filesystem) > 16 {
		return nil, fmt.Errorf("volume id of %d bytes does not fit the format marker: %w", len(k.volume), fault.InvalidArgument)
	}
	b := make([]byte, markerSector)
	n := copy(b, markerMagic)
	le := binary.LittleEndian
	le.PutUint16(b[n:], markerVersion)
	le.PutUint16(b[n+2:], uint16(len(k.volume)))
	le.PutUint64(b[n+4:], uint64(k.size))
	le.PutUint64(b[n+12:], uint64(offset))
	copy(b[n+20:n+36], k.filesystem)
	copy(b[n+36:], k.volume)
	le.PutUint32(b[markerSector-4:], crc32.Checksum(b[:markerSector-4], markerCRC))
	return b, nil
}

// decodeMarker reads the copy at offset; errNoMarker when it is none or is damaged.
func decodeMarker(b []byte, offset int64) (marker, error) {
	if len(b) < markerSector || !bytes.HasPrefix(b, []byte(markerMagic)) {
		return marker{}, errNoMarker
	}
	le, n := binary.LittleEndian, markerHeader
	length := int(le.Uint16(b[n+2:]))
	if le.Uint32(b[markerSector-4:]) != crc32.Checksum(b[:markerSector-4], markerCRC) ||
		le.Uint64(b[n+12:]) != uint64(offset) || length == 0 || length > markerMaxVolume {
		return marker{}, errNoMarker
	}
	if version := le.Uint16(b[n:]); version != markerVersion {
		return marker{}, fmt.Errorf("%w: it holds a format marker of version %d, written by a later release", fault.FormatUnfinished, version)
	}
	return marker{
		volume:     string(b[n+36 : n+36+length]),
		filesystem: Filesystem(bytes.TrimRight(b[n+20:n+36], "\x00")),
		size:       int64(le.Uint64(b[n+4:])),
	}, nil
}

// places returns where the copies are on a device of this size. The last MiB stays free.
func places(size int64) []int64 {
	n := 0
	for n < len(markerPlaces) && markerPlaces[n] <= size-mib-markerSector {
		n++
	}
	return markerPlaces[:n]
}

// readMarker returns the marker on the device, or errNoMarker. Copies that disagree are refused.
func readMarker(r io.ReaderAt, size int64) (marker, error) {
	found, any := marker{}, false
	buf := make([]byte, markerSector)
	for _, offset := range places(size) {
		if err := readFull(r, buf, offset); err != nil {
			return marker{}, err
		}
		k, err := decodeMarker(buf, offset)
		switch {
		case errors.Is(err, errNoMarker):
		case err != nil:
			return marker{}, err
		case any && (k.volume != found.volume || k.filesystem != found.filesystem):
			return marker{}, fmt.Errorf("%w: it holds format markers that disagree, of volume %s as %s and of volume %s as %s",
				fault.FormatUnfinished, found.volume, found.filesystem, k.volume, k.filesystem)
		default:
			found, any = k, true
		}
	}
	if !any {
		return marker{}, errNoMarker
	}
	return found, nil
}

// disk is what the marker needs of a device.
type disk interface {
	io.ReaderAt
	io.WriterAt
	// Flush writes everything to the device itself and forgets cached data, so that the next
	// read shows what the device has.
	Flush() error
}

// writeMarker writes and syncs all copies and reads them back.
func writeMarker(d disk, size int64, k marker) error {
	all := places(size)
	if len(all) == 0 {
		return fmt.Errorf("a device of %d bytes is too small for a filesystem: %w", size, fault.DeviceTooSmall)
	}
	for _, offset := range all {
		b, err := k.encode(offset)
		if err != nil {
			return err
		}
		if _, err := d.WriteAt(b, offset); err != nil {
			return fmt.Errorf("write format marker at offset %d: %w: %w", offset, fault.Unavailable, err)
		}
	}
	if err := d.Flush(); err != nil {
		return err
	}
	switch got, err := readMarker(d, size); {
	case err != nil:
		return fmt.Errorf("read the format marker back: %w: %w", fault.DeviceUnreadable, err)
	case got != k:
		return fmt.Errorf("the device does not keep what is written to it: the format marker reads back as %+v: %w",
			got, fault.DeviceUnreadable)
	}
	return nil
}

// clearMarker overwrites with zeros the copies that are still as they were written, and only those:
// mkfs has taken the places of the others. It returns when no copy can be read.
func clearMarker(d disk, size int64) error {
	buf, zeros := make([]byte, markerSector), make([]byte, markerSector)
	for _, offset := range places(size) {
		if err := readFull(d, buf, offset); err != nil {
			return err
		}
		if _, err := decodeMarker(buf, offset); err != nil {
			continue
		}
		// mkfs took this sector for free or for zeros, which is what it was before the marker.
		if _, err := d.WriteAt(zeros, offset); err != nil {
			return fmt.Errorf("clear format marker at offset %d: %w: %w", offset, fault.Unavailable, err)
		}
	}
	if err := d.Flush(); err != nil {
		return err
	}
	switch k, err := readMarker(d, size); {
	case errors.Is(err, errNoMarker):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("the format marker of %s is still on the device after it was cleared: %w", k.volume, fault.Unavailable)
	}
}
