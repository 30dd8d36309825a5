package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// errNoLoop: the image has no loop device now.
var errNoLoop = errors.New("no loop device")

const (
	// racePause is the pause after another process took the free loop device first.
	racePause = 5 * time.Millisecond
	// mostRaces is how many times in a row that is believed to be chance.
	mostRaces = 200
)

// inode is what makes a file that file, under whatever name.
type inode struct{ dev, ino uint64 }

func inodeOf(name string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return inode{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return inode{st.Dev, st.Ino}, nil
}

// find opens the loop device of a volume's image, or answers errNoLoop.
func (l *Loop) find(id pool.ID) (*os.File, error) {
	image, err := inodeOf(l.pool.ImagePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("volume %s is not in the pool: %w: %w", l.pool.Handle(id), fault.NotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w: %w", l.pool.Handle(id), fault.Unavailable, err)
	}
	loops, err := l.bound(func(name string) (bool, error) { return l.isBoundTo(name, image) })
	switch {
	case err != nil:
		return nil, fmt.Errorf("look for the loop device of volume %s: %w: %w", l.pool.Handle(id), fault.Unavailable, err)
	case len(loops) == 0:
		return nil, errNoLoop
	case len(loops) > 1:
		return nil, fmt.Errorf("volume %s has %d loop devices (%s), which would corrupt it; stop what uses it and detach those that this driver did not make with `losetup -d`: %w",
			l.pool.Handle(id), len(loops), strings.Join(loops, ", "), fault.Precondition)
	}
	f, err := l.openNode(loops[0], os.O_RDWR)
	if errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("loop device %s of volume %s is being detached: %w", loops[0], l.pool.Handle(id), fault.Busy)
	}
	if err != nil {
		return nil, fmt.Errorf("open loop device of volume %s: %w: %w", l.pool.Handle(id), fault.Unavailable, err)
	}
	return f, nil
}

// bound returns the names of the attached loop devices for which is says yes.
func (l *Loop) bound(is func(name string) (bool, error)) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(l.sysDir, "loop*", "loop", "backing_file"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		name := filepath.Base(filepath.Dir(filepath.Dir(file)))
		yes, err := is(name)
		if err != nil {
			return nil, err
		}
		if yes {
			names = append(names, name)
		}
	}
	return names, nil
}

// isBoundTo asks the kernel which file a loop device stands on. Names prove nothing: a file can have
// several, and the folder another path where the device was made.
func (l *Loop) isBoundTo(name string, image inode) (bool, error) {
	// Read-only: closing a device that was open for writing makes udev probe it again.
	f, err := l.openNode(name, os.O_RDONLY)
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if isGone(err) {
		return false, nil
	}
	return err == nil && inode{info.Device, info.Inode} == image, err
}

// isGone: a loop device without a file, or one that was removed altogether.
func isGone(err error) bool {
	return errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist)
}

// isUnlinked reports whether a loop device stands on the volume's image after that was removed from
// the pool behind the driver's back.
func (l *Loop) isUnlinked(name string, id pool.ID) bool {
	data, err := os.ReadFile(filepath.Join(l.sysDir, name, "loop", "backing_file"))
	return err == nil && strings.HasSuffix(strings.TrimSpace(string(data)), "/"+id.ImageName()+" (deleted)")
}

// attach makes a loop device of the image. The kernel keeps the open file, and with it the lock.
func (l *Loop) attach(ctx context.Context, image *os.File, blockSize int) (*os.File, error) {
	for range mostRaces {
		name, err := l.freeLoop()
		if err != nil {
			return nil, err
		}
		f, err := l.attachTo(name, image, blockSize)
		if !errors.Is(err, unix.EBUSY) && !isGone(err) {
			return f, err
		}
		// Another process was given the same free device and was faster.
		if err := pause(ctx, racePause); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("attach %s: others take every free loop device first: %w", image.Name(), fault.Unavailable)
}

func (l *Loop) attachTo(name string, image *os.File, blockSize int) (*os.File, error) {
	f, err := l.openNode(name, os.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("open loop device %s: %w: %w", name, fault.Unavailable, err)
	}
	// With O_DIRECT on the file, and no block size of the volume's own, the kernel also chooses blocks
	// large enough for direct I/O where the disk below needs more than 512 bytes. A filesystem without direct I/O refuses the flag.
	if flags, err := unix.FcntlInt(image.Fd(), unix.F_GETFL, 0); err == nil {
		_, _ = unix.FcntlInt(image.Fd(), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	cfg := unix.LoopConfig{Fd: uint32(image.Fd()), Size: uint32(blockSize), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_DIRECT_IO}}
	copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], image.Name())
	if err := unix.IoctlLoopConfigure(int(f.Fd()), &cfg); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("attach %s to %s (needs Linux 5.8 or newer): %w: %w", image.Name(), f.Name(), fault.Unavailable, err)
	}
	// From here on the device has a file; without discard switched off it must not stay.
	if err := l.noDiscard(name); err != nil {
		_ = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// freeLoop asks the kernel for a loop device without a file.
func (l *Loop) freeLoop() (string, error) {
	ctl, err := os.OpenFile(filepath.Join(l.devDir, "loop-control"), os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("find a free loop device: %w: %w", fault.Unavailable, err)
	}
	defer func() { _ = ctl.Close() }()
	n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", fmt.Errorf("find a free loop device: %w: %w", fault.Unavailable, err)
	}
	return "loop" + strconv.Itoa(n), nil
}

// openNode opens the node of a loop device, and makes it where nobody else does: the /dev of a
// container does not follow the kernel.
func (l *Loop) openNode(name string, flags int) (*os.File, error) {
	path := filepath.Join(l.devDir, name)
	number, err := l.number(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(number)); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("make device node %s: %w", path, err)
		}
		f, err = os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != number {
		return nil, errors.Join(fmt.Errorf("%s is not the node of that loop device", path), f.Close())
	}
	return f, nil
}

// number returns the device number of a loop device as the kernel lists it.
func (l *Loop) number(name string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(l.sysDir, name, "dev"))
	if err != nil {
		return 0, err
	}
	major, minor, _ := strings.Cut(strings.TrimSpace(string(data)), ":")
	ma, err := strconv.ParseUint(major, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("device number %q of %s: %w", data, name, err)
	}
	mi, err := strconv.ParseUint(minor, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("device number %q of %s: %w", data, name, err)
	}
	return unix.Mkdev(uint32(ma), uint32(mi)), nil
}

// setUp brings an attached device into the state that this driver wants, whoever attached it and
// however far that came.
func (l *Loop) setUp(f *os.File, size int64) error {
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return fmt.Errorf("read state of %s: %w: %w", f.Name(), fault.Unavailable, err)
	}
	if info.Flags&unix.LO_FLAGS_AUTOCLEAR != 0 {
		// A detach while the device was still open: it would vanish at the next close.
		info.Flags &^= unix.LO_FLAGS_AUTOCLEAR
		if err := unix.IoctlLoopSetStatus64(int(f.Fd()), info); err != nil {
			return fmt.Errorf("take %s back from its detach: %w: %w", f.Name(), fault.Unavailable, err)
		}
	}
	if err := l.noDiscard(filepath.Base(f.Name())); err != nil {
		return err
	}
	return setCapacity(f, size)
}

// noDiscard makes the device refuse discards. The kernel would punch holes into the image for them,
// and the holes are space that other volumes and foreign files could take away. The device keeps the
// setting for its next file, so it is looked at first: each write freezes the queue, for 12 to 35 ms.
func (l *Loop) noDiscard(name string) error {
	file := filepath.Join(l.sysDir, name, "queue", "discard_max_bytes")
	now, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(now)) == "0" {
		return nil
	}
	if err == nil {
		err = os.WriteFile(file, []byte("0"), 0)
	}
	if err == nil {
		now, err = os.ReadFile(file)
	}
	if err == nil && strings.TrimSpace(string(now)) != "0" {
		err = fmt.Errorf("it still says %s", strings.TrimSpace(string(now)))
	}
	if err != nil {
		return fmt.Errorf("switch discards off in %s, without which the volume would lose its reserved space (the node program needs a writable /sys): %w: %w",
			file, fault.Precondition, err)
	}
	return nil
}

// setCapacity makes the device as long as its image is now.
func setCapacity(f *os.File, size int64) error {
	now, err := sizeOf(f)
	if err == nil && now != size {
		if err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_CAPACITY, 0); err == nil {
			now, err = sizeOf(f)
		}
	}
	if err != nil {
		return fmt.Errorf("set size of %s: %w: %w", f.Name(), fault.Unavailable, err)
	}
	if now < size {
		return fmt.Errorf("%s has %d bytes and does not grow to the %d of its image: %w", f.Name(), now, size, fault.Precondition)
	}
	return nil
}

// prove compares what the kernel reads from and writes to with the image in the pool.
func (l *Loop) prove(f *os.File, id pool.ID) error {
	image, err := inodeOf(l.pool.ImagePath(id))
	if err != nil {
		return fmt.Errorf("image of volume %s: %w: %w", l.pool.Handle(id), fault.Precondition, err)
	}
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	switch {
	case err != nil:
		return fmt.Errorf("%s of volume %s is no longer attached to anything: %w: %w", f.Name(), l.pool.Handle(id), fault.Precondition, err)
	case inode{info.Device, info.Inode} != image:
		return fmt.Errorf("%s is attached to another file than the image of volume %s: %w", f.Name(), l.pool.Handle(id), fault.Precondition)
	case info.Offset != 0 || info.Sizelimit != 0 || info.Flags&unix.LO_FLAGS_READ_ONLY != 0:
		return fmt.Errorf("%s shows only a part of volume %s, or is read-only, so this driver did not make it; detach it with `losetup -d`: %w",
			f.Name(), l.pool.Handle(id), fault.Precondition)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
