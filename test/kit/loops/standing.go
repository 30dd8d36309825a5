package loops

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileID names a file by the device it is on and its inode: after a crash no path can be trusted, since
// the mounts that it went through are gone.
type fileID struct{ device, inode uint64 }

// loop is one attached loop device.
type loop struct {
	path    string
	number  uint64 // its own device number: where files on it are
	node    fileID // its file in /dev: what is behind a loop device made of this one
	backing fileID // the file behind it
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
			return nil, fmt.Errorf("%s: %w", path, err)
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
	return loop{
		path: path, number: stat.Rdev, node: fileID{stat.Dev, stat.Ino}, backing: fileID{info.Device, info.Inode},
	}, nil
}

// standingOn lists the loop devices that stand on a file: its own, those of files on these, as the
// volumes in a pool are, and those made of a device, as the kubelet does for raw block volumes. What
// stands on others comes before them.
func standingOn(all []loop, file fileID) []loop {
	var found []loop
	for _, l := range all {
		if l.backing != file {
			continue
		}
		found = append([]loop{l}, found...)
		found = append(standingOn(all, l.node), found...)
		for _, other := range all {
			if other.backing.device == l.number {
				found = append(standingOn(all, other.backing), found...)
			}
		}
	}
	return found
}

// DetachAll frees the loop devices that stand on a file, and tells whether there were any. A device in
// use is freed by the kernel when its last user ends.
func DetachAll(file string) (busy bool, err error) {
	var stat unix.Stat_t
	if err := unix.Stat(file, &stat); err != nil {
		return false, err
	}
	all, err := attachedLoops()
	if err != nil {
		return false, err
	}
	for _, l := range standingOn(all, fileID{stat.Dev, stat.Ino}) {
		busy = true
		err = errors.Join(err, Detach(l.path))
	}
	return busy, err
}
