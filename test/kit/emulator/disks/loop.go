package disks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// mostRaces is how often in a row another process may have the free loop device first.
	mostRaces = 100
	// goneWithin is how long a passing reader, such as udev's probe, may keep a device that is leaving.
	goneWithin = 2 * time.Second
	// copiedFor is how long a new mount namespace may keep what is mounted no more.
	copiedFor = 500 * time.Millisecond
	pause     = 10 * time.Millisecond
)

// attach makes a loop device of a file and returns its name.
func attach(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	for range mostRaces {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find a free loop device: %w", err)
		}
		name := "loop" + strconv.Itoa(number)
		switch held, err := nodeBound(name); {
		case err != nil:
			return "", err
		case held:
			<-time.After(pause)
			continue
		}
		device, err := openNode(name, os.O_RDWR)
		if isReplaced(err) {
			<-time.After(pause)
			continue
		}
		if err != nil {
			return "", err
		}
		cfg := unix.LoopConfig{Fd: uint32(file.Fd())}
		copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], path)
		err = errors.Join(unix.IoctlLoopConfigure(int(device.Fd()), &cfg), device.Close())
		if !errors.Is(err, unix.EBUSY) && !isReplaced(err) {
			return name, err
		}
	}
	return "", errors.New("others take every free loop device first")
}

// isReplaced reports whether there is no such device at this moment, because another process makes the free ones new.
func isReplaced(err error) bool {
	return errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, os.ErrNotExist)
}

// nodeBound reports whether a pod still has the node of a device, as a test of raw block volumes leaves it for a moment after
// its file is gone.
func nodeBound(name string) (bool, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	return strings.Contains(string(table), " /"+name+" "), err
}

// detach reports that the device is in use, or takes it away.
func detach(name, path string) (inUse bool, err error) {
	if !bound(name, path) {
		return false, nil // somebody else detached it
	}
	device, err := openAlone(name)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
		return false, errors.Join(fmt.Errorf("detach %s: %w", name, err), device.Close())
	}
	if err := device.Close(); err != nil {
		return false, err
	}
	// The kernel lets go of the file when the last reader has closed the device.
	ctx, cancel := context.WithTimeout(context.Background(), goneWithin)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for bound(name, path) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return true, nil
		}
	}
	return false, nil
}

// openAlone opens a loop device as its only exclusive user. A mount, a device mapping or another exclusive
// user, in whatever mount namespace, makes it fail; while we have the device none can come. A container that
// starts has for a moment a copy of every mount there was, so one refusal says nothing.
func openAlone(name string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(context.Background(), copiedFor)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		device, err := openNode(name, os.O_RDONLY|unix.O_EXCL)
		if !errors.Is(err, unix.EBUSY) {
			return device, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// bound reports whether a loop device stands on a file. Another device may have its name by now.
func bound(name, path string) bool {
	backing, err := os.ReadFile(filepath.Join("/sys/block", name, "loop/backing_file"))
	return err == nil && strings.TrimSuffix(strings.TrimSpace(string(backing)), " (deleted)") == path
}

// setCapacity tells a loop device that its file has grown.
func setCapacity(name string) error {
	device, err := openNode(name, os.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_CAPACITY, 0), device.Close())
}

// openNode opens the node of a loop device, and makes it where /dev does not follow the kernel.
func openNode(name string, flags int) (*os.File, error) {
	path := filepath.Join("/dev", name)
	f, err := os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	number, err := os.ReadFile(filepath.Join("/sys/block", name, "dev"))
	if err != nil {
		return nil, err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(number), "%d:%d", &major, &minor); err != nil {
		return nil, err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make device node %s: %w", path, err)
	}
	return os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
}
