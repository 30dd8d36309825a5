package mounter

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// extSuper is what we need of an ext2/3/4 superblock; the names are those of ext4_super_block.
type extSuper struct {
	blocks, blockSize, firstBlock    int64
	blocksPerGroup, inodeTableBlocks int64
	descriptorBlocks                 int64 // group descriptors and those reserved for growth
	mountTime                        uint32
	mountCount                       uint16
}

const (
	ext64bit = 0x80 // EXT4_FEATURE_INCOMPAT_64BIT

	// Where the primary superblock is, and how long.
	extSuperAt   = kib
	extSuperSize = kib
)

// readExtSuper reads the primary superblock.
func readExtSuper(r io.ReaderAt) (extSuper, error) {
	b := make([]byte, extSuperSize)
	if err := readFull(r, b, extSuperAt); err != nil {
		return extSuper{}, err
	}
	return parseExtSuper(b)
}

// parseExtSuper refuses what no mke2fs makes, so that no arithmetic on it can go wrong.
func parseExtSuper(b []byte) (extSuper, error) {
	bad := func(what string) (extSuper, error) {
		return extSuper{}, fmt.Errorf("ext4 superblock: %s: %w", what, fault.FormatDamaged)
	}
	le := binary.LittleEndian
	if len(b) < int(kib) || le.Uint16(b[0x38:]) != 0xef53 {
		return bad("missing")
	}
	logSize := le.Uint32(b[0x18:])
	if logSize > 6 {
		return bad("impossible block size")
	}
	s := extSuper{
		blocks: int64(le.Uint32(b[0x4:])), blockSize: kib << logSize, firstBlock: int64(le.Uint32(b[0x14:])),
		blocksPerGroup: int64(le.Uint32(b[0x20:])), mountTime: le.Uint32(b[0x2c:]), mountCount: le.Uint16(b[0x34:]),
	}
	descriptor := int64(32)
	if le.Uint32(b[0x60:])&ext64bit != 0 {
		s.blocks |= int64(le.Uint32(b[0x150:])) << 32
		descriptor = int64(le.Uint16(b[0xfe:]))
	}
	if s.blocks <= 0 || s.blocks > 1<<48 || s.blocksPerGroup <= 0 || s.firstBlock > 1 {
		return bad("impossible size")
	}
	inodeSize := int64(le.Uint16(b[0x58:]))
	s.inodeTableBlocks = (int64(le.Uint32(b[0x28:]))*inodeSize + s.blockSize - 1) / s.blockSize
	groups := (s.blocks + s.blocksPerGroup - 1) / s.blocksPerGroup
	s.descriptorBlocks = (groups*descriptor+s.blockSize-1)/s.blockSize + int64(le.Uint16(b[0xce:]))
	return s, nil
}

// mounted says whether the filesystem was ever mounted for writing.
func (s extSuper) mounted() bool { return s.mountTime != 0 || s.mountCount != 0 }

// canGrow says whether a growth would make the filesystem larger on a device of this size. The kernel and
// mke2fs drop a last group that could hold little more than its own tables, and then the filesystem
// stays short of the device for good.
func (s extSuper) canGrow(size int64) bool {
	gain := size/s.blockSize - s.blocks
	if gain <= 0 {
		return false
	}
	if (s.blocks-s.firstBlock)%s.blocksPerGroup != 0 {
		return true
	}
	const usable = 50 // blocks of use, as in adjust_fs_info of e2fsprogs
	return gain >= 3+s.inodeTableBlocks+s.descriptorBlocks+usable
}
