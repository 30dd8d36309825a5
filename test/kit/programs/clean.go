package programs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
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
	loops, err := LoopsBelow(dir)
	failures = append(failures, err)
	mounts, err := mountsBelow(dir)
	failures = append(failures, err)
	for _, path := range mounts {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			failures = append(failures, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	for _, loop := range loops {
		failures = append(failures, detach(loop))
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

// LoopsBelow returns the loop devices, as /dev/loopN, whose backing files are below dir.
func LoopsBelow(dir string) ([]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil {
			continue // detached between the two looks
		}
		if strings.HasPrefix(string(backing), dir+"/") {
			found = append(found, "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	return found, nil
}

func detach(loop string) error {
	f, err := os.OpenFile(loop, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", loop, err)
	}
	return nil
}
