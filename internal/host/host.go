// Package host gives both programs access to the node: it runs programs, opens devices exclusively, and reads the mount table and sysfs.
package host

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// MountTable is the mount table of this process.
const MountTable = "/proc/self/mountinfo"

// maxLine is the maximum length of a line that mountinfo reads.
const maxLine = bufio.MaxScanTokenSize - 1

// Mounts reads a mount table, in the order of mounting. Since Linux 5.8 a mount that stays is never missing from it, whatever else
// is mounted and unmounted meanwhile; older kernels are not supported.
//
// A single line that is too long for mountinfo would hide all others. Only the options of a filesystem, the last field, can be that
// long: those of an overlay name up to 500 folders. Mounts drops them from such a line.
func Mounts(file string) ([]*mountinfo.Info, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w: %w", fault.Unavailable, err)
	}
	var short bytes.Buffer
	for line := range bytes.Lines(text) {
		if len(line) > maxLine {
			line = append(line[:bytes.LastIndexByte(line, ' ')+1:len(line)], '\n')
		}
		short.Write(line)
	}
	table, err := mountinfo.GetMountsFromReader(&short, nil)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w: %w", fault.Unavailable, err)
	}
	return table, nil
}

// DeviceNumber parses a device number of sysfs, such as "7:3\n".
func DeviceNumber(text string) (uint64, error) {
	major, minor, _ := strings.Cut(strings.TrimSpace(text), ":")
	ma, err := strconv.ParseUint(major, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("device number %q: %w: %w", text, fault.Precondition, err)
	}
	mi, err := strconv.ParseUint(minor, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("device number %q: %w: %w", text, fault.Precondition, err)
	}
	return unix.Mkdev(uint32(ma), uint32(mi)), nil
}
