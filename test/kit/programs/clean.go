package programs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

// Clean unmounts everything below dir, detaches the loop devices whose files are there and removes
// the folder. It is for what a failed or interrupted run left behind: it works without the programs.
func Clean(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var failures []error
	// Before anything is unmounted: the files of a pool on a disk of its own lose their path with it.
	attached := loops.Below(dir)
	mounts, err := mountsBelow(dir)
	failures = append(failures, err)
	for _, path := range mounts {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			failures = append(failures, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	for _, loop := range attached {
		failures = append(failures, loops.Detach(loop))
	}
	if err := errors.Join(failures...); err != nil {
		return err // the folder stays: removing files below a live mount is never right
	}
	return os.RemoveAll(dir)
}

// mountsBelow returns the mount points below dir, the newest first.
func mountsBelow(dir string) ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if path := unescape(fields[4]); strings.HasPrefix(path, dir+"/") {
			found = append(found, path)
		}
	}
	slices.Reverse(found)
	return found, nil
}

// unescape undoes the octal escapes of the mount table.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
