package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
)

// ByIDConfig is where the machine's disks are. Empty fields mean the usual places.
type ByIDConfig struct {
	// DeviceDir holds udev's links: /dev/disk/by-id. When it is not below /dev/disk, as in tests,
	// loop devices are accepted.
	DeviceDir string
	// SysDir is where sysfs is mounted: /sys.
	SysDir string
	// DevDir holds the device nodes: /dev.
	DevDir string
	// LinkPrefix begins the link of every volume of the cloud. A disk without such a link is the machine's own and is never
	// used as a volume, whatever a request says. Empty: any disk may be a volume.
	LinkPrefix string
	// MayBeVolume reports whether a disk with such a link may be a volume, by its serial. It is for clouds
	// where the machine's own disks have links of the same form. Nil: LinkPrefix decides.
	MayBeVolume func(serial string) bool
	// Mounts is the mount table of this process: /proc/self/mountinfo. A disk that is mounted elsewhere than below plugins
	// or pods of KubeletDir (without pods: below KubeletDir) is the machine's own and never used as a volume.
	Mounts string
	// KubeletDir is kubelet's folder, without symlinks. Empty: any folder that contains plugins or pods.
	KubeletDir string
}

// ByID finds disks that a cloud attaches. The link in the device directory is only a hint, because udev may be late and may
// leave links of disks that are gone; the disk's own serial decides.
type ByID struct {
	deviceDir, sysDir, devDir string
	linkPrefix, mounts        string
	mayBeVolume               func(serial string) bool
	allowLoop                 bool
	kubeletDir                string
	guard                     guard
}

var _ Resolver = (*ByID)(nil)

// NewByID returns a resolver for cloud disks.
func NewByID(cfg ByIDConfig) *ByID {
	b := &ByID{
		deviceDir: cfg.DeviceDir, sysDir: cfg.SysDir, devDir: cfg.DevDir, linkPrefix: cfg.LinkPrefix, mayBeVolume: cfg.MayBeVolume,
		mounts: cfg.Mounts, kubeletDir: cfg.KubeletDir,
	}
	if b.mounts == "" {
		b.mounts = host.MountTable
	}
	if b.deviceDir == "" {
		b.deviceDir = "/dev/disk/by-id"
	}
	if b.sysDir == "" {
		b.sysDir = "/sys"
	}
	if b.devDir == "" {
		b.devDir = "/dev"
	}
	real, err := filepath.EvalSymlinks(b.deviceDir)
	if err != nil {
		real = b.deviceDir
	}
	b.allowLoop = !belowDevDisk(b.deviceDir) && !belowDevDisk(real)
	return b
}

func belowDevDisk(dir string) bool {
	return strings.HasPrefix(filepath.Clean(dir)+"/", "/dev/disk/")
}

// rescanEvery is how often Open looks for a disk while nothing reports a change: the device directory may not exist yet, and
// sysfs reports nothing.
const rescanEvery = 250 * time.Millisecond

// answerTime is how long before its deadline a call ends its wait: a caller whose deadline has passed sees no reason.
const answerTime = time.Second

// Open finds the disk, waiting for it until shortly before ctx ends, opens it and proves its identity and size, and that no other
// disk has the same identity.
func (b *ByID) Open(ctx context.Context, spec Spec) (*Device, error) {
	if spec.Name == "" && spec.Serial == "" {
		return nil, fmt.Errorf("find the device of volume %s: neither its name nor its serial is known: %w", spec.Volume, fault.InvalidArgument)
	}
	if deadline, has := ctx.Deadline(); has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-min(answerTime, time.Until(deadline)/10)))
		defer cancel()
	}
	changes, stop := watch(b.deviceDir)
	defer stop()
	tick := time.NewTicker(rescanEvery)
	defer tick.Stop()
	var seen error // why the last complete look found nothing
	for {
		dev, err := b.Lookup(ctx, spec)
		if err == nil {
			if err = b.alone(ctx, dev); err != nil {
				return nil, errors.Join(err, dev.Close())
			}
			return dev, nil
		}
		switch {
		case errors.Is(err, errNotYet):
			seen = err
		case seen == nil || !errors.Is(err, ctx.Err()): // an error that waiting does not change
			return nil, err
		}
		select {
		case <-changes:
		case <-tick.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil { // also when the tick came at the same moment
			reason := fault.DeviceMissing // it may come yet
			if errors.Is(seen, fault.Precondition) {
				reason = fault.DeviceIdentity
			}
			return nil, fmt.Errorf("%w: %w (waited for it: %w)", reason, seen, ctx.Err())
		}
	}
}

// errNotYet marks an error that the next read may not have.
var errNotYet = errors.New("may appear later")

// Lookup finds the disk without waiting.
func (b *ByID) Lookup(ctx context.Context, spec Spec) (*Device, error) {
	if err := checkName(spec.Name); err != nil {
		return nil, err
	}
	dev, err := b.lookup(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("find the device of volume %s: %w", spec.Volume, err)
	}
	if err := dev.Verify(ctx); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

func (b *ByID) lookup(ctx context.Context, spec Spec) (*Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	kernel, byLink, err := b.find(ctx, spec)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.devDir, kernel)
	// Opened for reading; a format opens the disk again. Some kernels refuse to mount a disk that is open for writing, and
	// udev probes a disk after each close of a writable descriptor.
	f, err := b.guard.open(ctx, kernel, openBound, func(context.Context) (*os.File, error) {
		return os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	switch {
	case errors.Is(err, os.ErrPermission): // SELinux, or a container without its privileges
		return nil, fmt.Errorf("open %s: %w: %w", path, fault.Unavailable, err)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w: %w: %w", path, fault.Unavailable, errNotYet, err)
	}
	return newDevice(f, path, spec, func(ctx context.Context, d *Device) error {
		return b.verify(ctx, d, kernel, byLink)
	})
}

// verify proves once more that the open disk is the one of the spec. It also refuses a disk whose link now leads to another
// disk: the machine's disks have changed meanwhile.
func (b *ByID) verify(ctx context.Context, d *Device, kernel string, byLink bool) error {
	changed := func(why string) error {
		return fmt.Errorf("device %s of volume %s: %w: %s: %w", d.path, d.spec.Volume, fault.Unavailable, why, errNotYet)
	}
	number, err := readText(filepath.Join(b.sysDir, "block", kernel, "dev"))
	if err != nil || number != fmt.Sprintf("%d:%d", unix.Major(d.number), unix.Minor(d.number)) {
		return changed("the disk has gone or another one has its name")
	}
	if err := errors.Join(b.prove(ctx, kernel, d.spec), b.checkFree(kernel)); err != nil {
		return err
	}
	if byLink && b.linked(d.spec.Name) != kernel {
		return changed("its link no longer leads to it")
	}
	return nil
}

// linked returns the kernel's name of the device that the link leads to, or nothing.
func (b *ByID) linked(name string) string {
	target, err := os.Readlink(filepath.Join(b.deviceDir, name))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// find returns the kernel's name of the disk of the spec: the one that its link leads to or, if that has another identity, the
// one disk of the machine that has this one. It opens no disk, and it refuses a disk that the machine has mounted.
func (b *ByID) find(ctx context.Context, spec Spec) (kernel string, byLink bool, err error) {
	if kernel, byLink, err = b.search(ctx, spec); err == nil {
		err = b.checkFree(kernel)
	}
	if err != nil {
		return "", false, err
	}
	return kernel, byLink, nil
}

func (b *ByID) search(ctx context.Context, spec Spec) (kernel string, byLink bool, err error) {
	var reason error
	if spec.Name != "" {
		if kernel = b.linked(spec.Name); kernel != "" {
			if reason = b.prove(ctx, kernel, spec); reason == nil {
				return kernel, true, nil
			}
		}
	}
	matches, err := b.matches(ctx, spec)
	switch {
	case err != nil:
		return "", false, err
	case len(matches) == 1:
		return matches[0], false, nil
	case len(matches) > 1:
		return "", false, errSeveral(matches)
	case reason != nil && !errors.Is(reason, fault.NotFound):
		return "", false, fmt.Errorf("%w: %w", reason, errNotYet)
	case reason != nil:
		return "", false, fmt.Errorf("%w; its link leads elsewhere: %w: %w", fault.NotFound, reason, errNotYet)
	}
	// The name and the serial come from the request, so the message has neither.
	return "", false, fmt.Errorf("%w on this machine: no disk has the name or the serial that it must have: %w", fault.NotFound, errNotYet)
}

func errSeveral(kernels []string) error {
	return fmt.Errorf("disks %s all have its identity: %w", strings.Join(kernels, ", "), fault.DeviceIdentity)
}

// alone returns an error if several disks have the identity of the spec. A volume that was renamed while it was attached keeps
// its old name on this machine, and another volume may have that name now. The identity of a loop device is the name of its
// file, which may exist in many folders.
func (b *ByID) alone(ctx context.Context, d *Device) error {
	if strings.HasPrefix(filepath.Base(d.path), "loop") {
		return nil
	}
	matches, err := b.matches(ctx, d.spec)
	if err == nil && len(matches) > 1 {
		err = fmt.Errorf("find the device of volume %s: %w", d.spec.Volume, errSeveral(matches))
	}
	return err
}

// matches returns the kernel's names of all disks that have the identity of the spec. Without one, a disk whose identity cannot be
// read in time is fault.Unavailable, because it may be the volume's.
func (b *ByID) matches(ctx context.Context, spec Spec) ([]string, error) {
	all, err := os.ReadDir(filepath.Join(b.sysDir, "block"))
	if err != nil {
		return nil, fmt.Errorf("list the machine's disks: %w: %w", fault.Unavailable, err)
	}
	var found []string
	var unread error
	for _, entry := range all {
		switch err := b.prove(ctx, entry.Name(), spec); {
		case err == nil:
			found = append(found, entry.Name())
		case errors.Is(err, fault.Unavailable):
			unread = fmt.Errorf("disk %s does not answer and may be the volume's: %w: %w", entry.Name(), errNotYet, err)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, unread
}

// prove returns an error if the disk is not the one of the spec: fault.NotFound for another disk, and
// fault.DeviceIdentity for one that cannot or must not be used.
func (b *ByID) prove(ctx context.Context, kernel string, spec Spec) error {
	id, err := b.identity(ctx, kernel)
	switch {
	case errors.Is(err, os.ErrNotExist) && !b.exists(kernel):
		return fmt.Errorf("%w: %s has gone", fault.NotFound, kernel)
	case errors.Is(err, fault.Unavailable): // it does not answer in time, which proves nothing
		return err
	case err != nil:
		return fmt.Errorf("device %s: %w: %w", kernel, fault.DeviceIdentity, err)
	case id.loop && !b.allowLoop:
		return fmt.Errorf("device %s: %w: a loop device has no identity of its own and %s is for real disks",
			kernel, fault.DeviceIdentity, b.deviceDir)
	case !id.loop && !b.isVolume(id):
		return fmt.Errorf("%w: %s is no volume of this cloud (its identity is %q)", fault.NotFound, kernel, append(id.serials, id.links...))
	case !id.proves(spec):
		return fmt.Errorf("%w: %s is another disk (its identity is %q)", fault.NotFound, kernel, append(id.serials, id.links...))
	}
	return nil
}

// isVolume reports whether a disk may be a volume of the cloud, by its identity.
func (b *ByID) isVolume(id identity) bool {
	return (b.linkPrefix == "" || id.linkBegins(b.linkPrefix)) && (b.mayBeVolume == nil || slices.ContainsFunc(id.serials, b.mayBeVolume))
}

// identity reads the identity of a disk. The kernel asks a virtio disk for its serial at each read, so this may block on a disk
// that hangs.
func (b *ByID) identity(ctx context.Context, kernel string) (identity, error) {
	read := make(chan identity, 1) // not a variable: a call that has lost its caller still sets it
	err := b.guard.run(ctx, "identity of "+kernel, openBound, func(context.Context) error {
		id, err := readIdentity(b.sysDir, kernel)
		read <- id
		return err
	})
	if err != nil {
		return identity{}, err
	}
	return <-read, nil
}

func (b *ByID) exists(kernel string) bool {
	_, err := os.Stat(filepath.Join(b.sysDir, "block", kernel))
	return err == nil
}

// Grow returns the disk's size: the controller grows it, in the cloud.
func (b *ByID) Grow(ctx context.Context, spec Spec, _ int64) (int64, error) {
	dev, err := b.Lookup(ctx, spec)
	if err != nil {
		return 0, err
	}
	size, err := dev.Size()
	return size, errors.Join(err, dev.Close())
}

// watch reports that something in dir may have changed. It reports nothing where inotify fails, so callers also read at
// intervals. stop ends it and waits until it has ended.
func watch(dir string) (changes <-chan struct{}, stop func()) {
	nothing := func() {}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, nothing
	}
	f := os.NewFile(uintptr(fd), "inotify") // non-blocking, so Close wakes a reader
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_ATTRIB); err != nil {
		_ = f.Close()
		return nil, nothing
	}
	out, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			if _, err := f.Read(buf); err != nil {
				return
			}
			select {
			case out <- struct{}{}:
			default: // one is waiting to be seen already
			}
		}
	}()
	return out, func() {
		_ = f.Close()
		<-done
	}
}
