package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// source is the device that is checked: the one that was asked for, or a loop device of the image.
type source struct {
	device *os.File
	image  *os.File
}

func (s source) close() {
	_ = s.device.Close()
	if s.image != nil {
		_ = s.image.Close()
	}
}

// open opens a device or an image, and refuses one that is in use. A device is open for reading only, also for a replay: some kernels do
// not mount what a program may write to.
func open(ctx context.Context, path string, writable bool) (source, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return source{}, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	s, err := asDevice(ctx, f, writable)
	if err != nil {
		_ = f.Close()
		return source{}, err
	}
	number, err := deviceNumber(s.device)
	if err == nil {
		err = host.CheckUnused(ctx, s.device, number)
	}
	if err != nil {
		s.close()
		return source{}, err
	}
	return s, nil
}

// asDevice returns f itself or, of an image, a loop device.
func asDevice(ctx context.Context, f *os.File, writable bool) (source, error) {
	info, err := f.Stat()
	if err != nil {
		return source{}, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	switch mode := info.Mode(); {
	case mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0:
		return source{device: f}, nil
	case !mode.IsRegular():
		return source{}, fmt.Errorf("%s is neither a block device nor an image: %w", f.Name(), fault.InvalidArgument)
	}
	inUse := func(err error) bool { return errors.Is(err, fault.DeviceInUse) }
	if err := untilDetached.Retry(ctx, inUse, func() error { return refuseAttached(f) }); err != nil {
		return source{}, err
	}
	dev, err := attach(f, writable)
	if err != nil {
		return source{}, err
	}
	return source{device: dev, image: f}, nil
}

// untilDetached repeats the look for a loop device, because the kernel detaches one a little later than its last user is gone.
var untilDetached = wait.Every(50*time.Millisecond, 60)

func deviceNumber(f *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	return st.Rdev, nil
}

// refuseAttached refuses an image that a loop device of the machine already shows: it is mounted, or may be.
func refuseAttached(image *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(image.Fd()), &st); err != nil {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	attached, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, file := range attached {
		name := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))
		loop, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("find out whether %s is attached: %w: %w", image.Name(), fault.Unavailable, err)
		}
		info, err := unix.IoctlLoopGetStatus64(int(loop.Fd()))
		_ = loop.Close()
		switch {
		case errors.Is(err, unix.ENXIO): // detached meanwhile
		case err != nil:
			return fmt.Errorf("find out whether %s is attached: %w: %w", image.Name(), fault.Unavailable, err)
		case info.Inode == st.Ino && info.Device == st.Dev:
			return fmt.Errorf("%s is attached as %s: %w", image.Name(), name, fault.DeviceInUse)
		}
	}
	return nil
}

// maxRaces is how many times in a row another program may take the free loop device first.
const maxRaces = 100

// attach makes a loop device of the image, which goes when its last user has closed it.
func attach(image *os.File, writable bool) (*os.File, error) {
	mode, flags := os.O_RDONLY, uint32(unix.LO_FLAGS_AUTOCLEAR|unix.LO_FLAGS_READ_ONLY)
	if writable {
		mode, flags = os.O_RDWR, unix.LO_FLAGS_AUTOCLEAR
	}
	backing, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", image.Fd()), mode, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w: %w", image.Name(), fault.Unavailable, err)
	}
	defer func() { _ = backing.Close() }()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("an image needs a loop device: %w: %w", fault.Unavailable, err)
	}
	defer func() { _ = control.Close() }()
	for range maxRaces {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("an image needs a loop device: %w: %w", fault.Unavailable, err)
		}
		loop, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), mode, 0)
		if err != nil {
			return nil, fmt.Errorf("an image needs a loop device: %w: %w", fault.Unavailable, err)
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: flags}})
		var dev *os.File
		if err == nil {
			dev, err = host.Reopen(loop, os.O_RDONLY)
		}
		_ = loop.Close()
		switch {
		case err == nil:
			return dev, nil
		case !errors.Is(err, unix.EBUSY):
			return nil, fmt.Errorf("attach %s to a loop device: %w: %w", image.Name(), fault.Unavailable, err)
		}
	}
	return nil, fmt.Errorf("attach %s: other programs take every free loop device first: %w", image.Name(), fault.Unavailable)
}
