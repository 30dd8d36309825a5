package mount

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// BindOptions says how Bind mounts.
type BindOptions struct {
	ReadOnly bool
	// Options that belong to a mount, such as noexec, are used; those of a filesystem took effect
	// when it was mounted.
	Options []string
}

// Bind makes the filesystem that is mounted at staged appear at a directory, which it makes. A bind that is there
// already is kept if it is as requested; everything else there is fault.Conflict. Where no filesystem of the volume is
// mounted at staged it refuses: the directory there is part of the node's own disk.
func (m *Mounter) Bind(ctx context.Context, staged, at State, o BindOptions) error {
	if err := m.bind(ctx, staged, at, o); err != nil {
		return fmt.Errorf("bind %s to %s: %w", staged.Path, at.Path, err)
	}
	return nil
}

func (m *Mounter) bind(ctx context.Context, staged, at State, o BindOptions) error {
	if staged.Use != Ours || staged.Block {
		return fmt.Errorf("no filesystem of the volume is mounted at %s; it has to be staged first: %w", staged.Path, fault.Precondition)
	}
	options, readOnly, err := ParseMountOptions(mounter.Filesystem(staged.Mount.FSType), o.Options)
	if err != nil {
		return err
	}
	asked := access{flags: flagsOf(options), readOnly: readOnly || o.ReadOnly}
	// A bind has the access of the mount that it is made of, and what is asked for in addition.
	inherited := staged.Mount.access()
	want := access{flags: asked.flags | inherited.flags, readOnly: asked.readOnly || inherited.readOnly}
	switch {
	case at.Use == Free:
	case at.Use != Ours:
		return at.NotOurs()
	case at.Block || at.Mount.Device != staged.Mount.Device || at.Mount.Root != staged.Mount.Root || at.Mount.FSType != staged.Mount.FSType:
		return fmt.Errorf("%s of %s is mounted there: %w", at.Mount.Root, at.Mount.Source, fault.Conflict)
	default:
		return at.gives(want)
	}
	from, err := m.open(staged.asked)
	if err != nil {
		return err
	}
	defer from.close()
	tree, err := detachedTree(from.dir, from.name)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	// What was cloned counts, not what the table had: staged may have been unmounted in between.
	if number, err := treeDevice(tree); err != nil || number != staged.Mount.Device {
		return errors.Join(fmt.Errorf("%s changed while it was bound; stage the volume again: %w", staged.Path, fault.Precondition), err)
	}
	return m.place(ctx, tree, at, asked, target.ensureDir)
}

// BindNode makes the device's node appear at a file, which it makes. A bind that is there already is kept if it is as
// requested; everything else there is fault.Conflict. A read-only bind keeps the node itself from being changed; that
// a container does not write to the disk through it is up to its device rules, because the kernel does not look at the
// mount when a device is opened.
func (m *Mounter) BindNode(ctx context.Context, dev mounter.BlockDevice, at State, readOnly bool) error {
	if err := m.bindNode(ctx, dev, at, readOnly); err != nil {
		return fmt.Errorf("bind device %s to %s: %w", dev.Path(), at.Path, err)
	}
	return nil
}

func (m *Mounter) bindNode(ctx context.Context, dev mounter.BlockDevice, at State, readOnly bool) error {
	switch {
	case at.Use == Free:
	case at.Use != Ours || !at.Block:
		return at.NotOurs()
	case at.Mount.Device != dev.Number():
		return fmt.Errorf("the node of block device %d:%d is bound there; unmount it first: %w",
			unix.Major(at.Mount.Device), unix.Minor(at.Mount.Device), fault.Conflict)
	case at.Mount.ReadOnly() != readOnly:
		return fmt.Errorf("it is bound with other access (read-only: %v); unmount it first: %w", at.Mount.ReadOnly(), fault.Conflict)
	default:
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
	return m.place(ctx, tree, at, access{readOnly: readOnly}, target.ensureFile)
}

// place gives a detached mount its access and then moves it to its path. So the path holds either nothing or the
// finished mount: no pod ever writes through a read-only one that is half made, and a call that was killed leaves
// nothing that the next one must judge.
func (m *Mounter) place(ctx context.Context, tree int, at State, asked access, ensure func(target) (bool, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	attr := unix.MountAttr{Attr_set: asked.attributes()}
	if attr.Attr_set&unix.MOUNT_ATTR_NOATIME != 0 {
		attr.Attr_clr = unix.MOUNT_ATTR__ATIME // a field of several bits: cleared before it is set
	}
	if attr.Attr_set != 0 {
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("set the attributes of the mount: %w", newMountError(err))
		}
	}
	t, err := m.open(at.asked)
	if err != nil {
		return err
	}
	defer t.close()
	made, err := ensure(t)
	if err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", t.dir, t.name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return t.remove(made, fmt.Errorf("move the mount to its place: %w", newMountError(err)))
	}
	return nil
}

// attributes are the flags in the words of mount_setattr(2).
func (a access) attributes() uint64 {
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

// detachedTree clones the mount that path, or the descriptor dir where path is empty, is on. The clone is in no mount
// table until it is moved to a place, and it vanishes with its descriptor.
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
func treeDevice(tree int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return 0, err
	}
	return st.Dev, nil
}

// newMountError explains what an old kernel or a seccomp profile answers.
func newMountError(err error) error {
	if errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: open_tree, mount_setattr and move_mount are needed (Linux 5.12 or newer): %w", fault.ProgramMissing, err)
	}
	return fmt.Errorf("%w: %w", fault.Unavailable, err)
}
