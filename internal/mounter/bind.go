package mounter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// BindOptions says how BindDir mounts.
type BindOptions struct {
	ReadOnly bool
	// Options that belong to a mount, such as noexec, are used; those of a filesystem took effect
	// when it was mounted.
	Options []string
}

// BindDir makes what is mounted at staging appear at the directory target, which it makes. It is
// idempotent; a target that holds something else, or the same with other access, is fault.Conflict.
// Where nothing is mounted at staging it refuses: the directory there is part of the node's own disk.
func (m *Mounter) BindDir(ctx context.Context, staging, target string, o BindOptions) error {
	if err := m.bindDir(ctx, staging, target, o); err != nil {
		return fmt.Errorf("bind %s to %s: %w", staging, target, err)
	}
	return nil
}

func (m *Mounter) bindDir(ctx context.Context, staging, target string, o BindOptions) error {
	if err := checkPaths(ctx, staging, target); err != nil {
		return err
	}
	source, ok, err := m.MountAt(staging)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("nothing is mounted at %s; it has to be staged first: %w", staging, fault.Precondition)
	}
	options, readOnly, err := ParseMountOptions(Filesystem(source.Filesystem), o.Options)
	if err != nil {
		return err
	}
	want := bindAccess{flags: flagsOf(options), readOnly: readOnly || o.ReadOnly}
	if at, ok, err := m.MountAt(target); err != nil || ok {
		return errors.Join(err, want.accepts(source, at))
	}
	tree, err := detachedTree(unix.AT_FDCWD, staging)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	// What was cloned counts, not what was looked at: staging may have been unmounted in between.
	if number, err := treeDevice(tree, source.Filesystem); err != nil || number != source.Device {
		return errors.Join(fmt.Errorf("%s changed while it was bound: %w", staging, fault.Unavailable), err)
	}
	return m.place(tree, target, want, ensureDir)
}

// bindAccess is what a bind mount lets its users do.
type bindAccess struct {
	flags    uintptr
	readOnly bool
}

// accepts says what is wrong with a mount that is at the target already. It is never changed to fit:
// somebody may be using it.
func (a bindAccess) accepts(source, at Mount) error {
	switch {
	case at.Path == "": // it could not be looked at, which is an error already
		return nil
	case at.Device != source.Device || at.Root != source.Root || at.Filesystem != source.Filesystem:
		return fmt.Errorf("%s is mounted on %s: %w", at.Source, at.Path, fault.Conflict)
	case a.readOnly != at.ReadOnly && (a.readOnly || !source.ReadOnly):
		return fmt.Errorf("it is mounted on %s with other access (read-only: %v): %w", at.Path, at.ReadOnly, fault.Conflict)
	case a.flags&^flagsOf(at.Options) != 0:
		return fmt.Errorf("it is mounted on %s with other options (%s): %w", at.Path, strings.Join(at.Options, ","), fault.Conflict)
	}
	return nil
}

// place gives a detached mount its access and then moves it to the target. So the target holds either
// nothing or the finished mount: nobody ever writes through a read-only one that is half made, and a
// call that was killed leaves nothing that the next one must judge.
func (m *Mounter) place(tree int, target string, want bindAccess, ensure func(string) (bool, error)) error {
	attr := unix.MountAttr{Attr_set: want.attributes()}
	if attr.Attr_set&unix.MOUNT_ATTR_NOATIME != 0 {
		attr.Attr_clr = unix.MOUNT_ATTR__ATIME // a field of several bits: cleared before it is set
	}
	if attr.Attr_set != 0 {
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("set the attributes of the mount: %w", newMountError(err))
		}
	}
	made, err := ensure(target)
	if err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return m.unmake(target, made, fmt.Errorf("move the mount to its place: %w", newMountError(err)))
	}
	at, ok, err := m.MountAt(target)
	if err == nil && (!ok || want.readOnly && !at.ReadOnly || want.flags&^flagsOf(at.Options) != 0) {
		err = fmt.Errorf("the kernel did not make %s what was asked for (it is %v): %w", target, at.Options, fault.Unavailable)
	}
	if err != nil {
		return m.undo(target, made, err)
	}
	return nil
}

// attributes are the flags in the words of mount_setattr(2).
func (a bindAccess) attributes() uint64 {
	var attr uint64
	for _, f := range mountFlags {
		if a.flags&f.flag != 0 {
			attr |= f.attribute
		}
	}
	if a.readOnly {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	return attr
}

// detachedTree clones the mount that path, or the descriptor dir where path is empty, is on. Nobody
// sees the clone until it is moved to a place, and it vanishes with its descriptor.
func detachedTree(dir int, path string) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT)
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	tree, err := unix.OpenTree(dir, path, flags)
	if err != nil {
		return 0, fmt.Errorf("clone the mount: %w", newMountError(err))
	}
	return tree, nil
}

// treeDevice returns the number of the block device below a detached mount.
func treeDevice(tree int, filesystem string) (uint64, error) {
	if filesystem == string(Btrfs) {
		// The clone has no path. A descriptor of O_PATH takes no ioctl, so it is opened again.
		dir, err := unix.Openat(tree, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		defer func() { _ = unix.Close(dir) }()
		return btrfsDeviceOf(dir)
	}
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return 0, err
	}
	return st.Dev, nil
}

// newMountError explains what an old kernel or a seccomp profile answers.
func newMountError(err error) error {
	if errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: open_tree, mount_setattr and move_mount are needed (Linux 5.12 or newer): %w", fault.Precondition, err)
	}
	return fmt.Errorf("%w: %w", fault.Unavailable, err)
}

// undo takes away what a failed call has mounted and made, so that the next one starts afresh.
func (m *Mounter) undo(target string, made bool, cause error) error {
	if err := m.Unmount(context.Background(), target); err != nil {
		return fmt.Errorf("%w (and undoing it: %w)", cause, err)
	}
	return m.unmake(target, made, cause)
}

// unmake removes a target that a failed call has made.
func (m *Mounter) unmake(target string, made bool, cause error) error {
	if made {
		if err := m.RemoveTarget(target); err != nil {
			return fmt.Errorf("%w (and undoing it: %w)", cause, err)
		}
	}
	return cause
}

// BindDevice makes the device's node appear at the file target, which it makes. It is idempotent; a
// target that holds something else, or the node with other access, is fault.Conflict. A read-only bind
// keeps the node itself from being changed; that nobody writes to the disk through it is up to the
// container's device rules, because the kernel does not look at the mount when a device is opened.
func (m *Mounter) BindDevice(ctx context.Context, dev BlockDevice, target string, readOnly bool) error {
	if err := m.bindDevice(ctx, dev, target, readOnly); err != nil {
		return fmt.Errorf("bind device %s to %s: %w", dev.Path(), target, err)
	}
	return nil
}

func (m *Mounter) bindDevice(ctx context.Context, dev BlockDevice, target string, readOnly bool) error {
	if err := checkPaths(ctx, target); err != nil {
		return err
	}
	at, ok, err := m.MountAt(target)
	if err != nil {
		return err
	}
	if ok {
		if number, err := nodeNumber(target); err != nil || number != dev.Number() {
			return fmt.Errorf("%s (%s) is mounted on %s: %w", at.Source, at.Root, target, fault.Conflict)
		}
		if readOnly != at.ReadOnly {
			return fmt.Errorf("it is bound with other access (read-only: %v): %w", at.ReadOnly, fault.Conflict)
		}
		return nil
	}
	// The descriptor whose identity was proven, and no name: a name may have passed to another disk.
	tree, err := detachedTree(int(dev.File().Fd()), "")
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != dev.Number() {
		return errors.Join(fmt.Errorf("%s is no longer the volume's device: %w", dev.Path(), fault.Unavailable), err)
	}
	return m.place(tree, target, bindAccess{readOnly: readOnly}, ensureFile)
}

// checkPaths refuses paths that may not be mounted on, and a call that has already ended.
func checkPaths(ctx context.Context, paths ...string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	for _, path := range paths {
		if err := CheckTarget(path); err != nil {
			return err
		}
	}
	return nil
}
