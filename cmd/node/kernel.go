package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// oldestKernel is the first Linux with mount_setattr; open_tree and move_mount are older. A publish needs all three.
var oldestKernel = [2]int{5, 12}

// kernelRelease returns the release of the running kernel, such as 6.1.0-18-amd64, read below root.
func kernelRelease(root string) (string, error) {
	release, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
	return strings.TrimSpace(string(release)), err
}

var releaseNumbers = regexp.MustCompile(`^([0-9]{1,4})\.([0-9]{1,4})([^0-9]|$)`)

// checkKernel returns an error for a kernel on which no publish can succeed, so that the program ends before the kubelet
// can register it.
func checkKernel(release string) error {
	numbers := releaseNumbers.FindStringSubmatch(release)
	if numbers == nil {
		return fmt.Errorf("kernel release %q: not of the form 5.12", release)
	}
	// At most four digits each, as checked.
	major, _ := strconv.Atoi(numbers[1])
	minor, _ := strconv.Atoi(numbers[2])
	if major < oldestKernel[0] || major == oldestKernel[0] && minor < oldestKernel[1] {
		return fmt.Errorf("kernel %s: volumes are published with mount_setattr, which needs Linux %d.%d or newer", release, oldestKernel[0], oldestKernel[1])
	}
	return nil
}
