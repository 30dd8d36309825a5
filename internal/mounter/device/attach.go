package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/files"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

const (
	// racePause is the pause after another process took the free loop device first.
	racePause = 5 * time.Millisecond
	// maxRaces is how many times in a row it may happen.
	maxRaces = 200
)

// attach makes a loop device of the image. The kernel keeps the file open, and with it the lock.
func (l *loop) attach(ctx context.Context, image *os.File, blockSize int) (*os.File, error) {
	for range maxRaces {
		name, err := l.freeLoop()
		if err != nil {
			return nil, err
		}
		f, err := l.attachTo(ctx, name, image, blockSize)
		if !errors.Is(err, unix.EBUSY) && !isGone(err) {
			return f, err
		}
		// Another process got the same free device and attached first.
		if err := wait.Sleep(ctx, racePause); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("attach %s: other programs take every free loop device first: %w", image.Name(), fault.Unavailable)
}

func (l *loop) attachTo(ctx context.Context, name string, image *os.File, blockSize int) (*os.File, error) {
	f, err := l.open(ctx, name, os.O_RDWR, func(*os.File) error { return nil })
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
	// The device has a file now. It must not stay attached unless discard is switched off.
	if err := l.noDiscard(name); err != nil {
		_ = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// freeLoop returns a loop device that has no file and whose node is bind-mounted nowhere. A pod can detach its raw block volume
// through the device node that it has; if another volume got that number, the pod could read and write that volume.
func (l *loop) freeLoop() (string, error) {
	taken, err := l.boundNodes()
	if err != nil {
		return "", fmt.Errorf("find a free loop device: %w: %w", fault.Unavailable, err)
	}
	ctl, err := os.OpenFile(filepath.Join(l.devDir, "loop-control"), os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("find a free loop device: %w: %w", fault.Unavailable, err)
	}
	defer func() { _ = ctl.Close() }()
	n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", fmt.Errorf("find a free loop device: %w: %w", fault.Unavailable, err)
	}
	if name := loopName(n); !taken[name] {
		return name, nil
	}
	listed, err := filepath.Glob(filepath.Join(l.sysDir, "loop[0-9]*"))
	if err != nil {
		return "", err
	}
	for _, dir := range listed {
		name := filepath.Base(dir)
		if _, err := os.Stat(filepath.Join(dir, "loop", "backing_file")); err != nil && !taken[name] {
			return name, nil
		}
		taken[name] = true
	}
	return addLoop(ctl, taken)
}

// addLoop adds a loop device above all of these.
func addLoop(ctl *os.File, above map[string]bool) (string, error) {
	highest := -1
	for name := range maps.Keys(above) {
		if n, err := strconv.Atoi(strings.TrimPrefix(name, "loop")); err == nil {
			highest = max(highest, n)
		}
	}
	for n := highest + 1; n <= highest+maxRaces; n++ {
		err := unix.IoctlSetInt(int(ctl.Fd()), unix.LOOP_CTL_ADD, n)
		if err == nil {
			return loopName(n), nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return "", fmt.Errorf("add a loop device: %w: %w", fault.Unavailable, err)
		}
	}
	return "", fmt.Errorf("add a loop device: other programs take every number first: %w", fault.Unavailable)
}

func loopName(n int) string { return "loop" + strconv.Itoa(n) }

// boundNodes returns the loop devices whose node is bind-mounted in this mount namespace, by the text of the mount
// table: the root of such a mount is the node's path on its filesystem.
func (l *loop) boundNodes() (map[string]bool, error) {
	table, err := host.Mounts(l.mounts)
	if err != nil {
		return nil, err
	}
	bound := map[string]bool{}
	for _, m := range table {
		if name := path.Base(strings.TrimSuffix(m.Root, "//deleted")); strings.HasPrefix(name, "loop") {
			bound[name] = true
		}
	}
	return bound, nil
}

// setUp sets all settings of an attached device that this driver depends on. A program that has the device open, such as a pod
// with a raw block volume, can change each of them.
func (l *loop) setUp(f *os.File, size int64) error {
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return fmt.Errorf("read state of %s: %w: %w", f.Name(), fault.Unavailable, err)
	}
	if info.Flags&unix.LO_FLAGS_READ_ONLY != 0 {
		return fmt.Errorf("%s was attached read-only, so this driver did not make it; detach it with `losetup -d`: %w", f.Name(), fault.Precondition)
	}
	if info.Offset != 0 || info.Sizelimit != 0 || info.Flags&unix.LO_FLAGS_AUTOCLEAR != 0 {
		// With autoclear, which a detach of an open device sets, it would vanish at the next close.
		info.Offset, info.Sizelimit, info.Flags = 0, 0, info.Flags&^unix.LO_FLAGS_AUTOCLEAR
		if err := setStatus(f, info); err != nil {
			return fmt.Errorf("reset %s to its whole image: %w: %w", f.Name(), fault.Unavailable, err)
		}
	}
	if readOnly, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET); err == nil && readOnly != 0 {
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, 0); err != nil {
			return fmt.Errorf("make %s writable: %w: %w", f.Name(), fault.Unavailable, err)
		}
	}
	if info.Flags&unix.LO_FLAGS_DIRECT_IO == 0 {
		// A filesystem without direct I/O refuses it.
		_ = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_DIRECT_IO, 1)
	}
	if err := l.noDiscard(filepath.Base(f.Name())); err != nil {
		return err
	}
	return setCapacity(f, size)
}

// setStatus changes the settings of a loop device. The kernel refuses with EAGAIN while pages of the device are cached
// that an offset would shift.
func setStatus(f *os.File, info *unix.LoopInfo64) error {
	var err error
	for range 10 {
		if err = f.Sync(); err != nil {
			return err
		}
		_ = unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0)
		if err = unix.IoctlLoopSetStatus64(int(f.Fd()), info); !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
	return err
}

// checkSys returns an error if the settings of loop devices cannot be written.
func (l *loop) checkSys() error {
	var st unix.Statfs_t
	if err := unix.Statfs(l.sysDir, &st); err != nil {
		return fmt.Errorf("statfs %s: %w: %w", l.sysDir, fault.Unavailable, err)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%s/*/queue/discard_max_bytes cannot be written: the filesystem is read-only, as in privileged containers of containerd before 2.0; "+
			"mount the host's /sys at /sys in the node program's container: %w", l.sysDir, fault.Precondition)
	}
	return nil
}

// keepReserved switches discard off on the loop devices below a pool's own filesystem. A trim of that filesystem, such as
// fstrim.timer's, would punch holes into the backing file, and other files could then take the space that the pool reserves.
func (l *loop) keepReserved(p *files.Pool) error {
	below, err := files.LoopsBelow(p.Dir(), l.sysDir)
	if err != nil {
		return err
	}
	for _, name := range below {
		if err := l.noDiscard(name); err != nil {
			return fmt.Errorf("pool %s lies on %s: %w", p.Dir(), name, err)
		}
	}
	return nil
}

// noDiscard makes the device refuse discards. The kernel would punch holes into the image for them,
// and the holes are space that other volumes and foreign files could take away. The device keeps the
// setting for its next file, so it is read first: each write freezes the queue, for 12 to 35 ms.
func (l *loop) noDiscard(name string) error {
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
		err = fmt.Errorf("it is still %s", strings.TrimSpace(string(now)))
	}
	if err != nil {
		return fmt.Errorf("switch discards off in %s, without which volumes would lose their reserved space: %w: %w", file, fault.Precondition, err)
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

// prove returns an error unless the device maps the volume's whole image.
func (l *loop) prove(f *os.File, id pool.ID) error {
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
		return fmt.Errorf("%s shows only a part of volume %s, or is read-only: a program changed it through its node; stage the volume again: %w",
			f.Name(), l.pool.Handle(id), fault.Precondition)
	}
	return nil
}
