// Package disks keeps the data of emulated volumes in sparse files and, as root, makes loop devices of
// them: attaching a volume to the machine that the emulator runs on gives it a real block device, with
// the link that udev would make for it.
package disks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Disk is a volume's data.
type Disk struct {
	// ID of the volume.
	ID string
	// Device is the name of the link to it, such as "scsi-0DO_Volume_pvc-1". The file has this name too:
	// it is how the node program recognizes a loop device.
	Device string
	// Size in bytes.
	Size int64
}

// Folder holds the data of an account's volumes and snapshots. It is not safe for concurrent use: its
// owner has a lock anyway.
type Folder struct {
	dir   string
	loops map[string]attachment // by the id of the disk
}

type attachment struct {
	loop string // as loop7
	link string
	disk Disk
	// pulled: the cloud has taken the disk away while it was in use, so its device is still there.
	pulled bool
}

// Open makes a folder of its own below dir.
func Open(dir string) (*Folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// A new folder each time: what an earlier run left, which may be attached still, is not touched.
	own, err := os.MkdirTemp(dir, "account-")
	if err != nil {
		return nil, err
	}
	return &Folder{dir: own, loops: map[string]attachment{}}, nil
}

// Path returns the file of a disk's data.
func (f *Folder) Path(d Disk) string { return filepath.Join(f.dir, "volumes", d.ID, d.Device) }

func (f *Folder) snapshotPath(id string) string { return filepath.Join(f.dir, "snapshots", id) }

// Create makes a disk, blank or with the data of a snapshot.
func (f *Folder) Create(d Disk, snapshot string) error {
	path := f.Path(d)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if snapshot != "" {
		if err := copyFile(f.snapshotPath(snapshot), path); err != nil {
			return err
		}
	}
	return resize(path, d.Size)
}

// Remove deletes a disk that is not attached.
func (f *Folder) Remove(d Disk) error { return os.RemoveAll(filepath.Dir(f.Path(d))) }

// Grow gives the disk its size, also while it is attached.
func (f *Folder) Grow(d Disk) error {
	if err := resize(f.Path(d), d.Size); err != nil {
		return err
	}
	if at, attached := f.loops[d.ID]; attached && bound(at.loop, f.Path(d)) {
		return setCapacity(at.loop)
	}
	return nil
}

// Rename gives a free disk another device name.
func (f *Folder) Rename(d Disk, device string) error {
	renamed := d
	renamed.Device = device
	return os.Rename(f.Path(d), f.Path(renamed))
}

// Snapshot copies what is on the disk now; what its users have not written yet is not there.
func (f *Folder) Snapshot(d Disk, id string) error {
	if err := os.MkdirAll(filepath.Dir(f.snapshotPath(id)), 0o755); err != nil {
		return err
	}
	return copyFile(f.Path(d), f.snapshotPath(id))
}

// RemoveSnapshot deletes a snapshot's data.
func (f *Folder) RemoveSnapshot(id string) error {
	if err := os.Remove(f.snapshotPath(id)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Attach gives the disk a loop device and the link to it.
func (f *Folder) Attach(d Disk, linkDir string) error {
	link, err := filepath.Abs(filepath.Join(linkDir, d.Device))
	if err != nil {
		return err
	}
	at, there := f.loops[d.ID]
	if there && !bound(at.loop, f.Path(d)) {
		there = false // it was pulled while it was in use, and has gone since
	}
	if !there {
		if at.loop, err = attach(f.Path(d)); err != nil {
			return fmt.Errorf("attach %s: %w", d.Device, err)
		}
	}
	at.link, at.disk, at.pulled = link, d, false
	f.loops[d.ID] = at
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink("/dev/"+at.loop, link)
}

// Detach takes link and loop device away. A device that is mounted, held or open is only reported:
// tearing it from under its user would leave this machine with a dead mount.
func (f *Folder) Detach(d Disk) (inUse bool, err error) {
	at, attached := f.loops[d.ID]
	if !attached {
		return false, nil
	}
	if err := os.Remove(at.link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	inUse, err = detach(at.loop, f.Path(d))
	if inUse || err != nil {
		at.pulled = true
		f.loops[d.ID] = at
		return inUse, err
	}
	delete(f.loops, d.ID)
	return false, nil
}

// Close detaches everything and removes the folder, unless a device is in use: then it says which.
func (f *Folder) Close() error {
	var failures []error
	for _, at := range f.loops {
		if at.pulled && !bound(at.loop, f.Path(at.disk)) {
			continue
		}
		inUse, err := f.Detach(at.disk)
		if inUse {
			err = fmt.Errorf("/dev/%s of %s is still mounted or open: it stays, with %s", at.loop, at.disk.Device, f.dir)
		}
		failures = append(failures, err)
	}
	if err := errors.Join(failures...); err != nil {
		return err // the files of a device that is in use must stay
	}
	return os.RemoveAll(f.dir)
}

func resize(path string, size int64) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(size), file.Close())
}

// copyFile copies a file: by reflink where the filesystem can, else without its holes.
func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := unix.IoctlFileClone(int(target.Fd()), int(source.Fd())); err == nil {
		return target.Close()
	}
	return errors.Join(copySparse(source, target), target.Close())
}

func copySparse(source, target *os.File) error {
	end, err := source.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for at := int64(0); at < end; {
		data, err := unix.Seek(int(source.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole is left
		} else if err != nil {
			return err
		}
		hole, err := unix.Seek(int(source.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := target.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(target, io.NewSectionReader(source, data, hole-data)); err != nil {
			return err
		}
		at = hole
	}
	return target.Truncate(end)
}
