// Package device finds the block device of a volume and proves that it is the right one.
//
// A name in a directory is only a hint: the disk's own identity decides. The check of the identity, the probe and the format all
// use one open descriptor, so no path is resolved again between a proof and what relies on it.
package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

const (
	// openBound is the time limit for opening a device. The kernel needs longer only if I/O of the disk hangs.
	openBound = 10 * time.Second
	// flushBound is the time limit for writing back a device's cache.
	flushBound = 2 * time.Minute
)

// A device that was just unmounted, that a program probes, or whose mount a starting container has copied, becomes free within
// this time.
var untilReleased = wait.Every(50*time.Millisecond, 20)

// guard runs system calls that may never return, one at a time for each device.
type guard struct{ wait.Guard }

func (g *guard) open(ctx context.Context, name string, bound time.Duration, do func(ctx context.Context) (*os.File, error)) (*os.File, error) {
	f, err := g.Open(ctx, name, bound, do)
	return f, unanswered(name, err)
}

func (g *guard) run(ctx context.Context, name string, bound time.Duration, do func(ctx context.Context) error) error {
	return unanswered(name, g.Run(ctx, name, bound, do))
}

func unanswered(name string, err error) error {
	if errors.Is(err, wait.ErrNoAnswer) {
		return fmt.Errorf("device %s: look for stuck I/O in the kernel's log: %w: %w", name, fault.Unavailable, err)
	}
	return err
}

// Spec identifies the disk of a volume.
type Spec struct {
	// Volume is the CSI volume id; for the pool it names the file.
	Volume string
	// Name is the base name of the link in the device directory; empty when it is not known.
	Name string
	// Serial is the serial that the disk must report; empty when it is not known.
	Serial string
	// Size is the minimum size in bytes; 0 when it is not known.
	Size int64
	// Encrypted volumes are used through a mapping on the disk.
	Encrypted bool
	// Place is the path of the mount where the volume is staged; empty when it is not known.
	Place string
}

// Device is an open block device whose identity was proven. The caller closes it.
type Device struct {
	file   *os.File
	path   string
	number uint64
	spec   Spec
	verify func(ctx context.Context, d *Device) error
}

// newDevice wraps the open descriptor of a block device and closes it when it returns an error. verify proves the identity
// again; the Device itself checks the size.
func newDevice(f *os.File, path string, spec Spec, verify func(ctx context.Context, d *Device) error) (*Device, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("stat device %s of volume %s: %w: %w", path, spec.Volume, fault.Unavailable, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		_ = f.Close()
		return nil, fmt.Errorf("device %s of volume %s is not a block device: %w", path, spec.Volume, fault.DeviceIdentity)
	}
	return &Device{file: f, path: path, number: st.Rdev, spec: spec, verify: verify}, nil
}

// File returns the open descriptor of the device; it stays owned by the Device.
func (d *Device) File() *os.File { return d.file }

// Path returns the kernel's name of the device, such as /dev/loop3.
func (d *Device) Path() string { return d.path }

// Number returns the device number, st_rdev of the device node.
func (d *Device) Number() uint64 { return d.number }

// Spec returns the spec for which the device was opened.
func (d *Device) Spec() Spec { return d.spec }

// Size returns the device's current size in bytes, read through the open descriptor.
func (d *Device) Size() (int64, error) {
	size, err := sizeOf(d.file)
	if err != nil {
		return 0, fmt.Errorf("read size of device %s of volume %s: %w: %w", d.path, d.spec.Volume, fault.Unavailable, err)
	}
	return size, nil
}

// Verify proves again that this is the disk of the spec and not smaller than Spec.Size.
func (d *Device) Verify(ctx context.Context) error {
	if d.verify != nil {
		if err := d.verify(ctx, d); err != nil {
			return err
		}
	}
	return d.checkSize()
}

// checkSize returns an error if the device is smaller than Spec.Size.
func (d *Device) checkSize() error {
	if d.spec.Size == 0 {
		return nil
	}
	size, err := d.Size()
	if err != nil {
		return err
	}
	if size < d.spec.Size {
		return fmt.Errorf("device %s of volume %s has %d bytes but %d were promised; "+
			"the kernel may not have seen a growth yet (detach and attach the volume again): %w",
			d.path, d.spec.Volume, size, d.spec.Size, fault.DeviceTooSmall)
	}
	return nil
}

// Close closes the descriptor.
func (d *Device) Close() error { return d.file.Close() }

// sizeOf asks the kernel how many bytes an open block device has.
func sizeOf(f *os.File) (int64, error) {
	var size uint64
	// x/sys has no helper for an ioctl that fills a 64-bit value on every architecture.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKGETSIZE64, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0, errno
	}
	return int64(size), nil
}

// Resolver finds the devices of volumes. ByID does it for cloud disks, Pools for those of the pools.
type Resolver interface {
	// Open finds the device, waits for it to appear until ctx ends, and proves its identity.
	// The pool's resolver attaches the loop device if it is not there yet.
	Open(ctx context.Context, spec Spec) (*Device, error)
	// Lookup is Open without attaching and without waiting: fault.NotFound when the device is not there.
	Lookup(ctx context.Context, spec Spec) (*Device, error)
	// Number returns the device number from sysfs. It opens no device, so a disk that hangs does not block it; calls use it
	// for volumes other than their own. fault.NotFound when the device is not there.
	Number(ctx context.Context, spec Spec) (uint64, error)
	// ByNumber opens the device with this number, if it may be the volume's: fault.NotFound when it cannot be. The caller has
	// found the device mounted where the volume is staged or published, and has only the volume's id.
	ByNumber(ctx context.Context, volume string, number uint64) (*Device, error)
	// Release releases the device once nothing uses it. Without a device it returns nil.
	Release(ctx context.Context, spec Spec) error
	// Grow makes the device at least size bytes long if this node can grow it, and returns its size.
	Grow(ctx context.Context, spec Spec, size int64) (int64, error)
}
