// Package loops gives tests and demonstrations loop devices that have never served, and finds and frees those of files.
//
// A loop device keeps settings of its queue, such as discard_max_bytes, after its file is detached. What one test or
// an earlier run wrote there lets the next one pass where a new machine would fail.
package loops

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Fresh replaces each free loop device of this machine by a new one of the same number. Devices that are attached or
// open are left alone: the kernel refuses to remove them. Another process that was just given a number finds it again
// a moment later.
func Fresh() error {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("replace the free loop devices: %w", err)
	}
	defer control.Close()
	names, err := filepath.Glob("/sys/block/loop[0-9]*")
	if err != nil {
		return err
	}
	for _, name := range names {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "loop"))
		if err != nil {
			continue
		}
		err = unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, number)
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err == nil {
			err = unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_ADD, number)
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("replace %s: %w", filepath.Base(name), err)
		}
	}
	return nil
}

// Main is the body of a TestMain: it makes the free loop devices new, runs the tests and ends the process.
func Main(m interface{ Run() int }) {
	if err := Fresh(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
