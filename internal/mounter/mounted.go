package mounter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// everMounted says whether the filesystem whose primary superblock is on the device was ever mounted for
// writing. What it reads is out of the reach of a program that only writes files, and is on the disk no
// later than anything that such a program was told is on the disk, so a power cut does not undo it:
//
//   - ext4 writes the time and the count of mounts into the superblock while it mounts.
//   - xfs clears the part of its log behind the head while it mounts; mkfs leaves one record there. The
//     superblock itself (sb_lsn) follows half a minute later, or at the unmount. A version 4 superblock
//     has no sb_lsn, and xfs_repair can make its log as mkfs left it, so version 4 counts as mounted.
//   - A LUKS header is in use from the moment that the marker is cleared. One without our subsystem was made by another
//     program, and no marker speaks of it.
func everMounted(r io.ReaderAt, size int64, fs Filesystem) (bool, error) {
	switch fs {
	case Ext4:
		sb, err := readExtSuper(r)
		return sb.mounted(), err
	case XFS:
		return xfsMounted(r, size)
	case LUKS:
		ours, err := hasOurSubsystem(r)
		return !ours, err
	}
	return false, nil
}

// LUKSSubsystem is the subsystem that luksFormat writes into each header of ours, together with the header itself.
const LUKSSubsystem = "cloudblock"

// hasOurSubsystem reads the binary header; the place is that of "subsystem" in the LUKS2 on-disk format.
func hasOurSubsystem(r io.ReaderAt) (bool, error) {
	const subsystemAt, subsystemLength = 208, 48
	b := make([]byte, subsystemLength)
	if err := readFull(r, b, subsystemAt); err != nil {
		return false, err
	}
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text) == LUKSSubsystem, nil
}

// CheckPlain refuses the header of an encrypted volume of ours on a disk that is to be a raw block device without encryption:
// its user would write over the key. A header of its user's own is data, and so is a start that cannot be read.
func CheckPlain(dev BlockDevice) error {
	head := make([]byte, probeBlock)
	if err := readFull(dev.File(), head, 0); err != nil {
		return nil //nolint:nilerr // a disk with bad sectors is used as it is
	}
	magic, err := primary(bytes.NewReader(head))
	if err != nil || magic != LUKS {
		return nil //nolint:nilerr // several magics are no header of ours
	}
	if ours, err := hasOurSubsystem(bytes.NewReader(head)); err != nil || !ours {
		return err
	}
	return fmt.Errorf("%s holds an encrypted volume, and its class or attributes do not say luks: it is left as it is: %w",
		dev.Path(), fault.FormatContent)
}

// CheckOwnHeader refuses a LUKS header without our subsystem, on a disk that is a copy: the copied volume was not encrypted by
// us, and its user wrote the header. One that was forged with the subsystem passes.
func CheckOwnHeader(dev BlockDevice) error {
	ours, err := hasOurSubsystem(dev.File())
	if err != nil || ours {
		return err
	}
	return fmt.Errorf("%s is a copy of what this driver has not encrypted, and its LUKS header is not opened: %w", dev.Path(), fault.LUKSHeader)
}

// xfsMounted reads the primary superblock and the start of the log; the names are those of xfs_dsb.
func xfsMounted(r io.ReaderAt, size int64) (bool, error) {
	const (
		blockSizeAt, logStartAt, groupBlocksAt, versionAt, groupLogAt, lsnAt = 4, 48, 84, 100, 124, 240

		sector    = 512
		maxRecord = 256 * kib // a record of mkfs is as long as the log's stripe unit
		recordID  = 0xfeedbabe
	)
	sb := make([]byte, kib)
	if err := readFull(r, sb, 0); err != nil {
		return false, err
	}
	be := binary.BigEndian
	if be.Uint16(sb[versionAt:])&0xf != 5 || be.Uint64(sb[lsnAt:]) != 0 {
		return true, nil
	}
	start, shift := be.Uint64(sb[logStartAt:]), sb[groupLogAt]
	block := (start>>shift)*uint64(be.Uint32(sb[groupBlocksAt:])) + start&(1<<shift-1)
	log := make([]byte, maxRecord+sector)
	limit := uint64(max(0, size-int64(len(log))))
	if blockSize := uint64(be.Uint32(sb[blockSizeAt:])); shift > 32 || start == 0 || blockSize == 0 || block > limit/blockSize {
		return false, fmt.Errorf("xfs superblock: impossible place of the log: %w", fault.FormatDamaged)
	} else if err := readFull(r, log, int64(block*blockSize)); err != nil {
		return false, err
	}
	for at := sector; at < len(log); at += sector {
		if be.Uint32(log[at:]) == recordID {
			return true, nil
		}
	}
	return false, nil
}
