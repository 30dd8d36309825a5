package kube

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// MountedExt4Grows says whether root on this machine, which holds all nodes of a cluster of
// `make cluster`, has what the kernel asks for before it grows a mounted ext4: CAP_SYS_RESOURCE.
func MountedExt4Grows() (bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
			return set>>24&1 == 1, err // CAP_SYS_RESOURCE is 24
		}
	}
	return false, errors.New("/proc/self/status has no CapBnd line")
}
