package mount

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// BindOptions are the options of Bind.
type BindOptions struct {
	ReadOnly bool
	// Options: Bind applies those of a mount, such as noexec. Those of a filesystem took effect when it was mounted.
	Options []string
}

// Bind binds the filesystem that is mounted at staged to a directory, which it makes. It keeps an existing bind that is as
// requested; anything else there is fault.Conflict. It refuses if no filesystem of the volume is mounted at staged, because the
// directory there would be on the node's own disk.
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
	// A bind has the restrictions of the mount that it is made of, and the requested ones.
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
	// The cloned mount is checked, not the one in the table: staged may have been unmounted in between.
	if number, err := treeDevice(tree); err != nil || number != staged.Mount.Device {
		return errors.Join(fmt.Errorf("%s changed while it was bound; stage the volume again: %w", staged.Path, fault.Precondition), err)
	}
	return m.place(ctx, tree, at, asked, target.ensureDir)
}

// BindNode binds the device's node to a file, which it makes. It keeps an existing bind that is as requested; anything else there
// is fault.Conflict. A read-only bind protects only the node itself. Writes to the disk through it are up to the container's
// device rules, because the kernel ignores the mount when a device is opened.
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
	// By the descriptor whose identity was proven: a name may belong to another disk by now.
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

// place sets the attributes of a detached mount and then moves it to its path. So the path has either no mount or a complete one:
// no pod can write through a mount that is about to become read-only, and a killed call leaves nothing half done.
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

// attributes returns the flags as mount_setattr(2) has them.
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

// detachedTree clones the mount of path, or of the descriptor dir if path is empty. The clone is in no mount table until it is
// moved to a path, and it ends with its descriptor.
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

// newMountError explains the errors of an old kernel or a seccomp profile.
func newMountError(err error) error {
	if errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: open_tree, mount_setattr and move_mount are needed (Linux 5.12 or newer): %w", fault.ProgramMissing, err)
	}
	return fmt.Errorf("%w: %w", fault.Unavailable, err)
}
