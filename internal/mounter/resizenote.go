package mounter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A note in the second sector of the device says that resize2fs has begun to grow this very ext4,
// which e2fsck had just found to be clean, and did not come to its end. ext4 leaves the first 1024 bytes
// to a boot loader, so neither resize2fs nor e2fsck touches the note. It is written and synced before
// resize2fs and cleared when that has ended, well or not; so one that is found stands for a growth that
// was killed or lost its power, and allows what is forbidden otherwise: e2fsck -y.
const (
	resizeMagic   = "cloudblock grow\n"
	resizeVersion = 1
	resizeAt      = 512
	resizeSector  = 512
)

// uuid is the identity of an ext4 filesystem.
type uuid [16]byte

func encodeResizeNote(of uuid) []byte {
	b := make([]byte, resizeSector)
	n := copy(b, resizeMagic)
	le := binary.LittleEndian
	le.PutUint16(b[n:], resizeVersion)
	copy(b[n+2:], of[:])
	le.PutUint32(b[resizeSector-4:], crc32.Checksum(b[:resizeSector-4], markerCRC))
	return b
}

// errOccupied: the sector of the note holds something else, such as a boot loader.
var errOccupied = errors.New("the boot sectors are in use")

// readResizeNote returns whose growth the note on the device is about; ok is false without one.
func readResizeNote(r io.ReaderAt) (of uuid, ok bool, err error) {
	b := make([]byte, resizeSector)
	if err := readFull(r, b, resizeAt); err != nil {
		return of, false, err
	}
	copy(of[:], b[len(resizeMagic)+2:])
	switch {
	case bytes.Equal(b, encodeResizeNote(of)):
		return of, true, nil
	case firstNonZero(b) >= 0:
		return of, false, errOccupied
	}
	return of, false, nil
}

// writeResizeNote puts a sector in the note's place, durably.
func writeResizeNote(d disk, sector []byte) error {
	if _, err := d.WriteAt(sector, resizeAt); err != nil {
		return fmt.Errorf("write the note of a growth: %w: %w", fault.Unavailable, err)
	}
	if err := d.Flush(); err != nil {
		return err
	}
	got := make([]byte, resizeSector)
	if err := readFull(d, got, resizeAt); err != nil {
		return err
	}
	if !bytes.Equal(got, sector) {
		return fmt.Errorf("%w: the device does not keep what is written to it", fault.Precondition)
	}
	return nil
}

// onNote runs f with the device open exclusively and lets go of it again, since e2fsck and resize2fs
// want it exclusively too.
func onNote(ctx context.Context, dev *os.File, f func(d disk) error) error {
	x, err := openExclusive(ctx, dev)
	if err != nil {
		return err
	}
	return errors.Join(f(x), x.Close())
}

// beginResize notes that resize2fs is about to run. Where the note has no place it stays away, and a
// resize2fs that is killed then needs somebody who looks at the result.
func (m *Mounter) beginResize(ctx context.Context, dev *os.File) error {
	return onNote(ctx, dev, func(d disk) error {
		if _, _, err := readResizeNote(d); errors.Is(err, errOccupied) {
			m.log("the boot sectors of an ext4 are in use, so there is no place to note that it is growing", "device", dev.Name())
			return nil
		} else if err != nil {
			return err
		}
		sb := make([]byte, extSuperSize)
		if err := readFull(d, sb, extSuperAt); err != nil {
			return err
		}
		return writeResizeNote(d, encodeResizeNote(uuidOf(sb)))
	})
}

// endResize clears the note.
func (m *Mounter) endResize(ctx context.Context, dev *os.File) error {
	return onNote(ctx, dev, func(d disk) error {
		if _, ok, err := readResizeNote(d); !ok {
			if errors.Is(err, errOccupied) {
				return nil
			}
			return err
		}
		return writeResizeNote(d, make([]byte, resizeSector))
	})
}

// mendResize repairs an ext4 whose growth was killed, if the device has a note of it. It comes before
// everything that looks at the filesystem, because half of a superblock may be new.
func (m *Mounter) mendResize(ctx context.Context, dev *os.File) error {
	if _, ok, err := readResizeNote(dev); !ok {
		if errors.Is(err, errOccupied) {
			return nil
		}
		return err
	}
	ctx = context.WithoutCancel(ctx)
	ours := false
	err := onNote(ctx, dev, func(d disk) (err error) {
		ours, err = mendSuper(d)
		return err
	})
	if errors.Is(err, errInUse) {
		return nil // by resize2fs itself, perhaps; whoever looks next says so
	}
	if err != nil || !ours {
		return err
	}
	if err := m.check(ctx, dev, true); errors.Is(err, errUncorrected) {
		if err = m.repair(ctx, dev); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	m.log("repaired an ext4 whose growth had been killed", "device", dev.Name())
	return m.endResize(ctx, dev)
}

// mendSuper reports whether the note is about the ext4 on the device, and makes the checksum of its
// superblock fit again: resize2fs writes only the bytes that change, each with a call of its own.
func mendSuper(d disk) (ours bool, err error) {
	of, ok, err := readResizeNote(d)
	if err != nil || !ok {
		return false, err
	}
	sb := make([]byte, extSuperSize)
	if err := readFull(d, sb, extSuperAt); err != nil {
		return false, err
	}
	if _, err := parseExtSuper(sb); err != nil || uuidOf(sb) != of {
		return false, nil //nolint:nilerr // whatever is there, it is not what was growing
	}
	if !fixExtChecksum(sb) {
		return true, nil
	}
	if _, err := d.WriteAt(sb, extSuperAt); err != nil {
		return false, fmt.Errorf("write the superblock: %w: %w", fault.Unavailable, err)
	}
	return true, d.Flush()
}
