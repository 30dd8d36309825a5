package main

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// loop is one attached loop device and the file behind it, by device number and inode: after a crash
// no path of the file can be trusted, since the mounts that it went through are gone.
type loop struct {
	path    string
	device  uint64 // its own number
	backing uint64 // the number of the device that the file is on
	inode   uint64
}

// attachedLoops lists the machine's loop devices that have a file.
func attachedLoops() ([]loop, error) {
	paths, err := filepath.Glob("/dev/loop[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []loop
	for _, path := range paths {
		l, err := examine(path)
		if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
			continue // without a file
		}
		if err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	return found, nil
}

func examine(path string) (loop, error) {
	device, err := os.Open(path)
	if err != nil {
		return loop{}, err
	}
	defer device.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &stat); err != nil {
		return loop{}, err
	}
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err != nil {
		return loop{}, err
	}
	return loop{path: path, device: stat.Rdev, backing: info.Device, inode: info.Inode}, nil
}

// detachPool frees the loop devices of a pool's volumes and of the pool's disk itself. A device in
// use is freed by the kernel when its last user ends.
func detachPool(image string) (busy bool, err error) {
	var stat unix.Stat_t
	if err := unix.Stat(image, &stat); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		return false, err
	}
	all, err := attachedLoops()
	if err != nil {
		return false, err
	}
	for _, disk := range all {
		if disk.backing != stat.Dev || disk.inode != stat.Ino {
			continue
		}
		busy = true
		for _, volume := range all {
			if volume.backing == disk.device {
				err = errors.Join(err, detach(volume.path))
			}
		}
		err = errors.Join(err, detach(disk.path))
	}
	return busy, err
}

func detach(path string) error {
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
