package mounter

import (
	"context"
	"fmt"

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
// idempotent; a target that holds something else is fault.Conflict. Where nothing is mounted at
// staging it refuses: the directory there is part of the node's own disk.
func (m *Mounter) BindDir(ctx context.Context, staging, target string, o BindOptions) error {
	if err := m.bindDir(ctx, staging, target, o); err != nil {
		return fmt.Errorf("bind %s to %s: %w", staging, target, err)
	}
	return nil
}

func (m *Mounter) bindDir(ctx context.Context, staging, target string, o BindOptions) error {
	options, readOnly, err := parseMountOptions(o.Options)
	if err != nil {
		return err
	}
	readOnly = readOnly || o.ReadOnly
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
	at, ok, err := m.MountAt(target)
	switch {
	case err != nil:
		return err
	case ok && (at.Device != source.Device || at.Root != source.Root || at.Filesystem != source.Filesystem):
		return fmt.Errorf("%s is mounted on %s: %w", at.Source, target, fault.Conflict)
	case ok:
		if !readOnly && at.ReadOnly && !source.ReadOnly {
			return fmt.Errorf("%s is mounted read-only: %w", target, fault.Conflict)
		}
		return m.settleBind(target, at, flagsOf(options), readOnly)
	}
	made, err := ensureDir(target)
	if err != nil {
		return err
	}
	if err := unix.Mount(staging, target, "", unix.MS_BIND, ""); err != nil {
		return m.undo(target, made, fmt.Errorf("mount: %w: %w", fault.Unavailable, err))
	}
	// Compare again what has really been bound: staging may have been unmounted a moment ago.
	at, ok, err = m.MountAt(target)
	if err == nil && (!ok || at.Device != source.Device || at.Root != source.Root) {
		err = fmt.Errorf("%s changed while it was bound: %w", staging, fault.Unavailable)
	}
	if err == nil {
		err = m.remount(target, at, flagsOf(options), readOnly)
	}
	if err != nil {
		return m.undo(target, made, err)
	}
	return nil
}

// settleBind finishes a bind mount that is there already. One that should be read-only and is not
// was left by a call that died between bind and remount; making it read-only takes nothing from
// anybody who asked for less.
func (m *Mounter) settleBind(target string, at Mount, flags uintptr, readOnly bool) error {
	if readOnly == at.ReadOnly && flags&^flagsOf(at.Options) == 0 {
		return nil
	}
	return m.remount(target, at, flags, readOnly)
}

// remount sets what a bind mount takes from nobody: its own flags and read-only. The flags that
// are there stay, a remount would otherwise drop them.
func (m *Mounter) remount(target string, at Mount, flags uintptr, readOnly bool) error {
	all := flags | flagsOf(at.Options)
	switch {
	case readOnly || at.ReadOnly:
		all |= unix.MS_RDONLY
	case flags&^flagsOf(at.Options) == 0:
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|all, ""); err != nil {
		return fmt.Errorf("remount: %w: %w", fault.Unavailable, err)
	}
	now, ok, err := m.MountAt(target)
	switch {
	case err != nil:
		return err
	case !ok || readOnly && !now.ReadOnly || flags&^flagsOf(now.Options) != 0:
		return fmt.Errorf("the kernel did not make %s what was asked for (it is %v): %w", target, now.Options, fault.Unavailable)
	}
	return nil
}

// undo takes away what a failed call has mounted and made, so that the next one starts afresh.
func (m *Mounter) undo(target string, made bool, cause error) error {
	if err := m.Unmount(context.Background(), target); err != nil {
		return fmt.Errorf("%w (and undoing it: %w)", cause, err)
	}
	if made {
		if err := m.RemoveTarget(target); err != nil {
			return fmt.Errorf("%w (and undoing it: %w)", cause, err)
		}
	}
	return cause
}

// BindDevice makes the device's node appear at the file target, which it makes. It is idempotent; a
// target that holds something else is fault.Conflict. A read-only bind keeps the node itself from
// being changed; that nobody writes to the disk through it is up to the container's device rules,
// because the kernel does not look at the mount when a device is opened.
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
		if !readOnly && at.ReadOnly {
			return fmt.Errorf("it is bound read-only: %w", fault.Conflict)
		}
		return m.settleBind(target, at, 0, readOnly)
	}
	made, err := ensureFile(target)
	if err != nil {
		return err
	}
	if err := unix.Mount(dev.Path(), target, "", unix.MS_BIND, ""); err != nil {
		return m.undo(target, made, fmt.Errorf("mount: %w: %w", fault.Unavailable, err))
	}
	number, err := nodeNumber(target)
	if err != nil || number != dev.Number() {
		return m.undo(target, made, fmt.Errorf("%s is no longer the volume's device: %w", dev.Path(), fault.Unavailable))
	}
	if !readOnly {
		return nil
	}
	if at, _, err = m.MountAt(target); err == nil {
		err = m.remount(target, at, 0, true)
	}
	if err != nil {
		return m.undo(target, made, err)
	}
	return nil
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
