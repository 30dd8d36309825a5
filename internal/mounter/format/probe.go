package format

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

const (
	probeBlock = 4 * kib
	// probeEnds is how much of both ends is read in full.
	probeEnds = mib
	// behindHeader is where the data begins after a LUKS2 header of the usual size: there is the superblock of a filesystem, as
	// ciphertext.
	behindHeader = 16 * mib
	// probeSamples is how many blocks between the ends are read in addition to the known places.
	probeSamples = 128
)

// Extent is a range of bytes on the device.
type Extent struct{ From, To int64 }

// probe reads both ends, every known place of a superblock, the start of the data after a LUKS header, and samples between. It
// returns the offset of the first byte that is not zero, or -1 if all were. A failed read fails the probe: a device that cannot be
// read is never blank.
func probe(ctx context.Context, r io.ReaderAt, size int64) (nonZero int64, err error) {
	buf := make([]byte, probeEnds)
	nonZero = -1
	for _, e := range ProbeExtents(size) {
		for from := e.From; from < e.To; from += probeEnds {
			if err := ctx.Err(); err != nil {
				return -1, fmt.Errorf("read the device: %w: %w", fault.Unavailable, err)
			}
			chunk := buf[:min(probeEnds, e.To-from)]
			if err := host.ReadFull(r, chunk, from); err != nil {
				return -1, err
			}
			if i := firstNonZero(chunk); i >= 0 && nonZero < 0 {
				nonZero = from + int64(i)
			}
		}
	}
	return nonZero, nil
}

// ProbeExtents lists what probe reads, in order and without overlaps.
func ProbeExtents(size int64) []Extent {
	all := []Extent{{0, min(size, probeEnds)}, {max(0, size-probeEnds), size}, {behindHeader, behindHeader + probeEnds}}
	for _, at := range superblockPlaces(size) {
		all = append(all, Extent{at, at + 1})
	}
	for n := int64(1); n <= probeSamples; n++ {
		// Not at round fractions, where formats often have gaps.
		at := size/(probeSamples+1)*n + n*37*kib
		all = append(all, Extent{at, at + probeBlock})
	}
	for i, e := range all {
		all[i] = Extent{e.From &^ (probeBlock - 1), min((e.To+probeBlock-1)&^(probeBlock-1), size)}
	}
	slices.SortFunc(all, func(a, b Extent) int { return cmp.Compare(a.From, b.From) })
	merged := all[:0]
	for _, e := range all {
		switch last := len(merged) - 1; {
		case e.From >= e.To:
		case last >= 0 && e.From <= merged[last].To:
			merged[last].To = max(merged[last].To, e.To)
		default:
			merged = append(merged, e)
		}
	}
	return merged
}

// primaries are the magics of the superblocks that this package makes. blkid ignores a superblock with a wrong checksum, but a
// device with a damaged filesystem is not blank.
var primaries = map[mounter.Filesystem]struct {
	at    int
	magic string
}{mounter.Ext4: {1080, "\x53\xef"}, mounter.XFS: {0, "XFSB"}, mounter.LUKS: {0, "LUKS\xba\xbe"}}

// primary names the one of our filesystems whose primary superblock is on the device.
func primary(r io.ReaderAt) (mounter.Filesystem, error) {
	head := make([]byte, probeBlock)
	if err := host.ReadFull(r, head, 0); err != nil {
		return "", err
	}
	found := mounter.Filesystem("")
	for fs, p := range primaries {
		switch {
		case !bytes.HasPrefix(head[p.at:], []byte(p.magic)):
		case found != "":
			return "", fmt.Errorf("the device carries both %s and %s: %w", found, fs, fault.FormatDamaged)
		default:
			found = fs
		}
	}
	return found, nil
}

// xfsInProgress is the offset of sb_inprogress.
const xfsInProgress = 126

// inProgress reports whether an xfs says that its mkfs has not ended: mkfs.xfs writes so at first, and takes it back with its last
// write. The kernel mounts no such filesystem, so no data is in it.
func inProgress(r io.ReaderAt) (bool, error) {
	var flag [1]byte
	err := host.ReadFull(r, flag[:], xfsInProgress)
	return flag[0] != 0, err
}

// allZero is a chunk of a blank device.
var allZero [probeEnds]byte

// firstNonZero returns the index of the first byte that is not zero, or -1.
func firstNonZero(b []byte) int {
	if bytes.Equal(b, allZero[:min(len(b), len(allZero))]) {
		return -1 // much faster than the loop
	}
	for i, c := range b {
		if c != 0 {
			return i
		}
	}
	return -1
}
