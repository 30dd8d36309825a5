package mount

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// Request is a mount of a device.
type Request struct {
	Filesystem mounter.Filesystem
	// Options are those of mount -o.
	Options  []string
	ReadOnly bool
	// New: the filesystem was made, and read back, just before, so it is not checked.
	New bool
}

// Mount checks the filesystem, mounts it at the directory of at, which it makes, and grows it to the size of its device. It keeps
// an existing mount of the device that is as requested; anything else there is fault.Conflict.
func (m *Mounter) Mount(ctx context.Context, dev mounter.BlockDevice, at State, req Request) error {
	if err := m.mount(ctx, dev, at, req); err != nil {
		return fmt.Errorf("mount %s at %s: %w", dev.Path(), at.Path, err)
	}
	return nil
}

func (m *Mounter) mount(ctx context.Context, dev mounter.BlockDevice, at State, req Request) error {
	options, readOnly, err := ParseMountOptions(req.Filesystem, req.Options)
	if err != nil {
		return err
	}
	req.Options, req.ReadOnly = options, req.ReadOnly || readOnly
	if _, err := mounter.ParseFilesystem(string(req.Filesystem)); err != nil {
		return err
	}
	switch {
	case at.Use == Free:
		return m.mountAfresh(ctx, dev, at, req)
	case at.Use != Ours:
		return at.NotOurs()
	case at.Block || at.Mount.FSType != string(req.Filesystem):
		return fmt.Errorf("it is mounted there as %s, not %s: %w", at.Mount.FSType, req.Filesystem, fault.Conflict)
	}
	if err := at.gives(access{flags: flagsOf(req.Options), readOnly: req.ReadOnly}); err != nil || req.ReadOnly {
		return err
	}
	if err := m.growStaged(ctx, dev, at.Path, req.Filesystem); err != nil {
		// Never a kind that is final for kubelet, which would then forget that the volume is mounted here.
		return fmt.Errorf("%w: it is mounted and stays so, but does not grow: %w", fault.Unavailable, err)
	}
	return nil
}

// mountAfresh checks, mounts and grows a filesystem where nothing is mounted. After an error nothing is mounted: most errors mean
// that to kubelet, and the volume would be detached under the mount.
func (m *Mounter) mountAfresh(ctx context.Context, dev mounter.BlockDevice, at State, req Request) error {
	if !req.ReadOnly && !req.New && req.Filesystem == mounter.Ext4 {
		if err := m.format.CheckOffline(ctx, dev); err != nil {
			return err
		}
	}
	t, err := m.open(at.asked)
	if err != nil {
		return err
	}
	defer t.close()
	made, err := t.ensureDir()
	if err != nil {
		return err
	}
	if err := m.runMount(ctx, dev, t, req); err != nil {
		// This call has mounted nothing. A mount that is there is another program's and stays. The kind is not final for kubelet,
		// so the next call finds it.
		if freeErr := t.free(); freeErr != nil {
			return fmt.Errorf("%w: %s", freeErr, err.Error())
		}
		return t.remove(made, err)
	}
	mounted, err := m.mounted(t, dev)
	if err != nil {
		return err
	}
	if err = mounted.is(dev, req); err == nil && !req.ReadOnly {
		err = m.growStaged(ctx, dev, at.Path, req.Filesystem)
	}
	if err == nil {
		return nil
	}
	if undoErr := t.unmount(context.WithoutCancel(ctx), mounted.ID); undoErr != nil {
		// Never a kind that is final for kubelet, as above.
		return fmt.Errorf("%w: %w (and undoing it: %w)", fault.Unavailable, err, undoErr)
	}
	return t.remove(made, err)
}

// runMount runs mount(8) through mount-utils. It passes the directory as a descriptor, so no part of its path is resolved
// again.
func (m *Mounter) runMount(ctx context.Context, dev mounter.BlockDevice, t target, req Request) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	dir, err := unix.Openat(t.dir, t.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w: %w", t.path, fault.Unavailable, err)
	}
	defer func() { _ = unix.Close(dir) }()
	options := withPolicy(req.Filesystem, req.Options)
	if req.ReadOnly {
		options = append([]string{"ro"}, options...)
	}
	// The dot makes the kernel follow the descriptor's link, which it would not do for the last part of a path.
	place := fmt.Sprintf("/proc/%d/fd/%d/.", os.Getpid(), dir)
	// The kernel does not reuse the device's name while it is open here. The options are a user's and may contain secrets, so no
	// log or message has them.
	out, err := host.Alone(context.WithoutCancel(ctx), "mount", func() (host.Output, error) {
		err := m.mounts.MountSensitiveWithoutSystemdWithMountFlags(
			dev.Path(), place, string(req.Filesystem), nil, options, []string{"--no-canonicalize"})
		if err == nil {
			return host.Output{}, nil
		}
		why, said, _ := strings.Cut(err.Error(), "\nOutput: ")
		why, _, _ = strings.Cut(why, "\n") // what follows is the command line
		return host.Output{Stderr: []byte(why + "\n" + strings.ReplaceAll(said, place, t.path)), ExitCode: 1}, nil
	})
	if err == nil && out.ExitCode != 0 {
		err = fmt.Errorf("%w: %s (see also the kernel log)", fault.MountFailed, out.Tail())
	}
	return err
}

// mounted returns the mount that mount(8) made.
func (m *Mounter) mounted(t target, dev mounter.BlockDevice) (Mount, error) {
	id, err := t.mountID()
	if err != nil {
		return Mount{}, err
	}
	table, err := m.Table()
	if err != nil {
		return Mount{}, err
	}
	made, ok := table.withID(id)
	if !ok || made.Device != dev.Number() && made.Source != dev.Path() {
		return Mount{}, fmt.Errorf("%w: something else is mounted there", fault.Unavailable)
	}
	return made, nil
}

// is proves that a mount is of the device and as requested.
func (m Mount) is(dev mounter.BlockDevice, req Request) error {
	switch {
	case m.Device != dev.Number():
		return fmt.Errorf("%w: what got mounted is not the volume's device", fault.MountFailed)
	case m.ReadOnly() != req.ReadOnly:
		// The kernel mounts a damaged or write-protected device read-only without an error.
		return fmt.Errorf("%w: it could be mounted read-only only (see the kernel log)", fault.MountFailed)
	}
	return nil
}
