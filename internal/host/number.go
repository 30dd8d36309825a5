package host

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// DeviceNumber reads a device number as sysfs writes it, such as "7:3\n".
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
