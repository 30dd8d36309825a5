package mounter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	fiFreeze = 0xc0045877 // FIFREEZE of linux/fs.h
	fiThaw   = 0xc0045878 // FITHAW

	// guardEnd is how long a guard that was told to thaw has for it.
	guardEnd = 5 * time.Second
)

// FreezeRequest says what to freeze and when it must be thawed at the latest.
type FreezeRequest struct {
	// Mountpoint is where the device's filesystem is mounted.
	Mountpoint string
	// For bounds the freeze, whatever becomes of this process.
	For time.Duration
	// Answer, if set, is a file that says that the filesystem is frozen. It is removed before the
	// thaw, also when only the guard is left to do that: it must never outlive what it says.
	Answer string
	// Keep are paths whose filesystem must never be frozen.
	Keep []string
}

// Frozen is a filesystem that a guard keeps frozen: a child process that holds the mount's
// descriptor and thaws when it is told to, when its time is over, and when this process dies.
type Frozen struct {
	dir   *os.File // the mount, so that we can thaw when the guard cannot
	alive io.Closer
	done  chan struct{} // closed when the guard has ended
}

// Freeze freezes the filesystem of the device. It returns when everything written before is on the
// device and nothing is written any more. Whoever calls must Thaw; nobody else may have frozen it:
// then it is fault.Precondition, and left as it is. Nothing but a filesystem of this very device is
// ever frozen.
func (m *Mounter) Freeze(ctx context.Context, dev BlockDevice, req FreezeRequest) (*Frozen, error) {
	f, err := m.freeze(ctx, dev, req)
	if err != nil {
		return nil, fmt.Errorf("freeze the filesystem of %s at %s: %w", dev.Path(), req.Mountpoint, err)
	}
	return f, nil
}

func (m *Mounter) freeze(ctx context.Context, dev BlockDevice, req FreezeRequest) (*Frozen, error) {
	if err := checkPaths(ctx, req.Mountpoint); err != nil {
		return nil, err
	}
	if req.For <= 0 {
		return nil, fmt.Errorf("its time is over: %w", fault.Unavailable)
	}
	if err := dev.Verify(ctx); err != nil {
		return nil, err
	}
	dir, err := openMountOf(req.Mountpoint, dev.Number())
	if err != nil {
		return nil, err
	}
	for _, path := range req.Keep {
		if same, err := livesOn(path, dev.Number()); err != nil || same {
			return nil, errors.Join(fmt.Errorf("%s may be on this filesystem, which must not be frozen then: %w", path, fault.Precondition), err, dir.Close())
		}
	}
	frozen, err := m.startGuard(ctx, dir, req)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return frozen, nil
}

// openMountOf opens the directory at path and proves on the descriptor that it belongs to a
// filesystem of the device.
func openMountOf(path string, dev uint64) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w: %w", path, fault.Unavailable, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	same, err := onDevice(fd, dev)
	if err == nil && same {
		same, err = alive(dev)
	}
	if err != nil || !same {
		return nil, errors.Join(fmt.Errorf("what is mounted at %s is not the volume: %w", path, fault.Precondition), err, dir.Close())
	}
	return dir, nil
}

// livesOn says whether the file or directory at path is on a filesystem of the device.
func livesOn(path string, dev uint64) (bool, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, fmt.Errorf("open %s: %w: %w", path, fault.Unavailable, err)
	}
	defer func() { _ = unix.Close(fd) }()
	return onDevice(fd, dev)
}

// onDevice says whether an open file is on a filesystem of the device.
func onDevice(fd int, dev uint64) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return false, err
	}
	if fs.Type == unix.BTRFS_SUPER_MAGIC {
		numbers, err := btrfsDevicesOf(fd)
		for _, number := range numbers {
			if number == dev {
				return true, err
			}
		}
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	return st.Dev == dev, nil
}

// startGuard starts the guard, which freezes, and waits for its word. The guard comes first, so that
// a frozen filesystem is never without one.
func (m *Mounter) startGuard(ctx context.Context, dir *os.File, req FreezeRequest) (*Frozen, error) {
	command := append(append([]string{}, m.guard...), req.For.String(), req.Answer)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{dir}, os.Stderr
	// A group of its own: what ends ours must not end the guard.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	living, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	words, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start its guard: %w: %w", fault.Unavailable, err), living.Close())
	}
	f := &Frozen{dir: dir, alive: living, done: make(chan struct{})}
	// While it writes what is dirty it looks whether it is still wanted.
	unwanted := context.AfterFunc(ctx, func() { _ = living.Close() })
	defer unwanted()
	word, err := bufio.NewReader(words).ReadString('\n')
	go func() {
		defer close(f.done)
		_ = cmd.Wait()
	}()
	if word = strings.TrimSpace(word); err == nil && word == guardFrozen {
		return f, nil // and if ctx has ended it thaws by itself
	}
	_ = living.Close()
	<-f.done // it has nothing to do any more
	switch {
	case strings.Contains(word, unix.EBUSY.Error()):
		return nil, fmt.Errorf("somebody else has frozen it already: %w", fault.Precondition)
	case strings.Contains(word, unix.EOPNOTSUPP.Error()):
		return nil, fmt.Errorf("the filesystem cannot be frozen: %w", fault.Precondition)
	}
	// It may have frozen and died before it could say so.
	return nil, errors.Join(fmt.Errorf("its guard said %q: %w", word, fault.Unavailable), err, thaw(dir))
}

// Done is closed when the guard has ended: nothing is frozen any more, or nobody would thaw it.
func (f *Frozen) Done() <-chan struct{} { return f.done }

// Thaw ends the freeze and returns when the filesystem can be written again. The guard does it; if it
// does not, because somebody killed it, this process does.
func (f *Frozen) Thaw() error {
	_ = f.alive.Close()
	late := time.NewTimer(guardEnd)
	defer late.Stop()
	select {
	case <-f.done:
	case <-late.C:
	}
	return errors.Join(thaw(f.dir), f.dir.Close())
}

// thaw thaws the filesystem that dir is on. One that is not frozen is no error.
func thaw(dir *os.File) error {
	if err := unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("thaw the filesystem at %s: %w: %w (`fsfreeze -u` does it by hand)", dir.Name(), fault.Unavailable, err)
	}
	return nil
}

// ThawLeft thaws the filesystem of the device after a node program that had frozen it was killed
// together with its guard. One that is not frozen is no error.
func (m *Mounter) ThawLeft(dev BlockDevice, mountpoint string) error {
	dir, err := openMountOf(mountpoint, dev.Number())
	if err != nil {
		return err
	}
	return errors.Join(thaw(dir), dir.Close())
}
