package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// BlockStats are the kernel's counters of a block device since it appeared: its file stat in sysfs, see
// Documentation/block/stat.rst. Reading them touches no device, so it never waits for one that hangs.
type BlockStats struct {
	Reads, Writes, Discards, Flushes BlockIO
	// Busy is how long the device had requests in flight.
	Busy time.Duration
	// InFlight is the number of requests that the device has been given and has not completed.
	InFlight uint64
}

// BlockIO counts the completed requests of one kind.
type BlockIO struct {
	Completed uint64
	Bytes     uint64 // 0 for flushes
	// Time is the sum of the times that the requests took.
	Time time.Duration
}

// Completed is the number of completed requests of all kinds.
func (s BlockStats) Completed() uint64 {
	return s.Reads.Completed + s.Writes.Completed + s.Discards.Completed + s.Flushes.Completed
}

const (
	// statFields is the number of fields since Linux 5.5. Newer kernels may append some.
	statFields = 17
	// statSector is the unit of sectors in bytes, whatever the device's sectors are.
	statSector = 512
	// The largest numbers, in bits, that can be converted to bytes and to a Duration.
	sectorBits, millisecondBits = 55, 43
)

// ParseBlockStats parses the content of a device's file stat.
func ParseBlockStats(text string) (BlockStats, error) {
	fields := strings.Fields(text)
	if len(fields) < statFields {
		return BlockStats{}, fmt.Errorf("counters of a block device %.200q: %d fields, want %d: %w", text, len(fields), statFields, fault.Precondition)
	}
	var failed error
	number := func(field, bits int) uint64 {
		n, err := strconv.ParseUint(fields[field], 10, bits)
		if err != nil && failed == nil {
			failed = fmt.Errorf("counters of a block device %.200q: field %d: %w: %w", text, field+1, fault.Precondition, err)
		}
		return n
	}
	milliseconds := func(field int) time.Duration { return time.Duration(number(field, millisecondBits)) * time.Millisecond }
	// Requests, merged requests, sectors, milliseconds.
	requests := func(first int) BlockIO {
		return BlockIO{Completed: number(first, 64), Bytes: number(first+2, sectorBits) * statSector, Time: milliseconds(first + 3)}
	}
	s := BlockStats{
		Reads: requests(0), Writes: requests(4), InFlight: number(8, 64), Busy: milliseconds(9), Discards: requests(11),
		Flushes: BlockIO{Completed: number(15, 64), Time: milliseconds(16)},
	}
	if failed != nil {
		return BlockStats{}, failed
	}
	return s, nil
}

// BlockStats reads the counters of the block device with this number; false if the kernel has no such device.
func (s Sysfs) BlockStats(number uint64) (BlockStats, bool, error) {
	text, err := readLine(filepath.Join(s.Folder(number), "stat"))
	if err != nil || text == "" {
		return BlockStats{}, false, err
	}
	stats, err := ParseBlockStats(text)
	return stats, err == nil, err
}

// Below returns the numbers of the devices on which a device is stacked, such as the disk of an encrypted mapping, and of those below
// them, the lowest first. It does not look below a loop device, which is stacked on a file.
func (s Sysfs) Below(number uint64) []uint64 { return s.below(number, maxStack) }

// maxStack is how deep devices are stacked at the maximum: a mapping on a logical volume on a partition is 3.
const maxStack = 8

func (s Sysfs) below(number uint64, levels int) (found []uint64) {
	if levels == 0 {
		return nil
	}
	slaves, err := filepath.Glob(filepath.Join(s.Folder(number), "slaves/*"))
	if err != nil {
		return nil
	}
	for _, slave := range slaves {
		one, err := NumberOf(slave)
		if err != nil || slices.Contains(found, one) {
			continue // the disk is gone: its link is dangling
		}
		found = append(append(s.below(one, levels-1), found...), one)
	}
	return found
}

// Kernel returns the kernel's name of a device, such as loop3; its number if the kernel has no such device.
func (s Sysfs) Kernel(number uint64) string {
	if link, err := os.Readlink(s.Folder(number)); err == nil {
		return filepath.Base(link)
	}
	return fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number))
}
