package loops

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Attach gives a file a free loop device and returns the device, which is open.
func Attach(file string) (*os.File, error) {
	image, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) { // another program makes the free ones new
			continue
		}
		if err != nil {
			return nil, err
		}
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{Fd: uint32(image.Fd())}); err == nil {
			return device, nil
		}
		_ = device.Close()
		if !errors.Is(err, unix.EBUSY) { // another program was faster
			return nil, fmt.Errorf("attach %s: %w", file, err)
		}
	}
}

// Below returns the loop devices, as /dev/loopN, whose files are below a folder.
func Below(dir string) (found []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is good
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(string(backing), dir+"/") { // an error: detached between the two looks
			found = append(found, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return found
}

// Detach frees a loop device. It is no error if it has no file.
func Detach(path string) error {
	device, err := os.Open(path)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return &os.PathError{Op: "detach", Path: path, Err: err}
	}
	return nil
}
