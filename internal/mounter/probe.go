package mounter

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	probeBlock = 4 * kib
	// probeEnds is how much of both ends is read in full.
	probeEnds = mib
	// behindHeader is where the data begins on a disk with a LUKS2 header of the usual size: a filesystem has its
	// superblock right behind it, as ciphertext.
	behindHeader = 16 * mib
	// probeSamples is how many blocks between the ends are read in addition to the known places.
	probeSamples = 128
)

// findings is what our own read of a device found.
type findings struct {
	signatures []signature
	nonZero    int64 // offset of the first byte that is not zero; -1: none
}

// blank says whether every byte that was read is zero.
func (f findings) blank() bool { return f.nonZero < 0 }

// foreign returns the first signature that is not of fs.
func (f findings) foreign(fs Filesystem) (signature, bool) {
	i := slices.IndexFunc(f.signatures, func(s signature) bool { return s.fs != fs })
	if i < 0 {
		return signature{}, false
	}
	return f.signatures[i], true
}

// extent is a range of bytes on the device.
type extent struct{ from, to int64 }

// probe reads both ends, every known superblock place, where data begins behind a LUKS header, and samples between.
// Any read that fails fails the probe: a device that cannot be read is never blank.
func probe(ctx context.Context, r io.ReaderAt, size int64) (findings, error) {
	out := findings{nonZero: -1}
	spots := magicSpots(size)
	buf := make([]byte, probeEnds)
	for _, e := range probeExtents(size) {
		for from := e.from; from < e.to; from += probeEnds {
			if err := ctx.Err(); err != nil {
				return out, fmt.Errorf("read the device: %w: %w", fault.Unavailable, err)
			}
			chunk := buf[:min(probeEnds, e.to-from)]
			if err := readFull(r, chunk, from); err != nil {
				return out, err
			}
			if i := firstNonZero(chunk); i >= 0 && (out.nonZero < 0 || from+int64(i) < out.nonZero) {
				out.nonZero = from + int64(i)
			}
			out.match(spots, chunk, from)
		}
	}
	return out, nil
}

// match records the signatures whose magic lies inside chunk.
func (f *findings) match(spots []spot, chunk []byte, from int64) {
	first, _ := slices.BinarySearchFunc(spots, from, func(s spot, o int64) int { return cmp.Compare(s.offset, o) })
	for _, s := range spots[first:] {
		i := s.offset - from
		if i >= int64(len(chunk)) {
			return
		}
		if bytes.HasPrefix(chunk[i:], []byte(s.magic)) {
			f.signatures = append(f.signatures, s.signature)
		}
	}
}

// spot is a signature at one place.
type spot struct {
	offset int64
	signature
}

// magicSpots lists every place on a device of this size where a magic may stand, in order.
func magicSpots(size int64) []spot {
	var out []spot
	for _, s := range slices.Concat(primaries, signatures) {
		for _, offset := range s.at(size) {
			if offset >= 0 && offset+int64(len(s.magic)) <= size {
				out = append(out, spot{offset, s})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b spot) int { return cmp.Compare(a.offset, b.offset) })
	return out
}

// probeExtents lists what probe reads, in order and without overlaps.
func probeExtents(size int64) []extent {
	all := []extent{{0, min(size, probeEnds)}, {max(0, size-probeEnds), size}, {behindHeader, behindHeader + probeEnds}}
	for _, s := range magicSpots(size) {
		all = append(all, extent{s.offset, s.offset + int64(len(s.magic))})
	}
	for n := int64(1); n <= probeSamples; n++ {
		// Not at round fractions: those are where formats have their gaps.
		at := size/(probeSamples+1)*n + n*37*kib
		all = append(all, extent{at, at + probeBlock})
	}
	for i, e := range all {
		all[i] = extent{e.from &^ (probeBlock - 1), min((e.to+probeBlock-1)&^(probeBlock-1), size)}
	}
	slices.SortFunc(all, func(a, b extent) int { return cmp.Compare(a.from, b.from) })
	merged := all[:0]
	for _, e := range all {
		switch last := len(merged) - 1; {
		case e.from >= e.to:
		case last >= 0 && e.from <= merged[last].to:
			merged[last].to = max(merged[last].to, e.to)
		default:
			merged = append(merged, e)
		}
	}
	return merged
}

// primary names the one of our filesystems whose primary superblock is on the device.
func primary(r io.ReaderAt, size int64) (Filesystem, error) {
	head := make([]byte, min(size, 68*kib))
	if err := readFull(r, head, 0); err != nil {
		return "", err
	}
	found := Filesystem("")
	for _, s := range primaries {
		offset := s.at(size)[0]
		if offset+int64(len(s.magic)) > int64(len(head)) || !bytes.HasPrefix(head[offset:], []byte(s.magic)) {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("the device carries both %s and %s: %w", found, s.fs, fault.FormatDamaged)
		}
		found = s.fs
	}
	return found, nil
}

// readFull fills buf from offset; anything less is an error.
func readFull(r io.ReaderAt, buf []byte, offset int64) error {
	if n, err := r.ReadAt(buf, offset); n < len(buf) {
		return fmt.Errorf("%w: the device cannot be read at offset %d (%d bytes; see the kernel log): %w",
			fault.DeviceUnreadable, offset, len(buf), err)
	}
	return nil
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
