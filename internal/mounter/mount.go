package mounter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// MountRequest says how a device is to be mounted.
type MountRequest struct {
	// Target is the directory; it is made if it is not there.
	Target     string
	Filesystem Filesystem
	// Options are those of mount -o.
	Options  []string
	ReadOnly bool
}

// MountDevice checks the filesystem, mounts it and grows it to the size of its device. It is
// idempotent. Something else at the target is fault.Conflict, the mount of a disk that has gone
// fault.Precondition.
func (m *Mounter) MountDevice(ctx context.Context, dev BlockDevice, req MountRequest) error {
	if err := m.mountDevice(ctx, dev, req); err != nil {
		return fmt.Errorf("mount %s at %s: %w", dev.Path(), req.Target, err)
	}
	return nil
}

func (m *Mounter) mountDevice(ctx context.Context, dev BlockDevice, req MountRequest) error {
	options, readOnly, err := ParseMountOptions(req.Filesystem, req.Options)
	if err != nil {
		return err
	}
	req.Options, req.ReadOnly = options, req.ReadOnly || readOnly
	if err := checkPaths(ctx, req.Target); err != nil {
		return err
	}
	at, mounted, err := m.MountAt(req.Target)
	switch {
	case err != nil:
		return err
	case !mounted:
		return m.mountAfresh(ctx, dev, req)
	}
	if err := fits(at, dev.Number(), req); err != nil || req.ReadOnly {
		return err
	}
	if err := m.growStaged(ctx, dev, req.Target, req.Filesystem); err != nil {
		// Never a kind that is final for the kubelet: it would forget that the volume is mounted here.
		return fmt.Errorf("%w: it is mounted and stays so, but does not grow: %w", fault.Unavailable, err)
	}
	return nil
}

// fits says why a mount that is there already is not the one that is asked for.
func fits(at Mount, dev uint64, req MountRequest) error {
	if at.Device != dev {
		live, err := alive(at.Device)
		switch {
		case err != nil:
			return err
		case !live && strings.HasPrefix(at.Source, "/dev/"):
			return fmt.Errorf("%w: the mount there is of a disk (%s) that is gone from this machine; "+
				"stop the pods that use it and unmount it", fault.Precondition, at.Source)
		}
		return fmt.Errorf("%s (%s) is mounted there: %w", at.Source, at.Filesystem, fault.Conflict)
	}
	if live, err := alive(dev); err != nil || !live {
		return errors.Join(fmt.Errorf("%w: the disk of the mount there is gone from this machine; "+
			"stop the pods that use it and unmount it", fault.Precondition), err)
	}
	switch asked, has := flagsOf(req.Options), flagsOf(at.Options); {
	case at.Filesystem != string(req.Filesystem):
		return fmt.Errorf("it is mounted there as %s, not %s: %w", at.Filesystem, req.Filesystem, fault.Conflict)
	case at.ReadOnly != req.ReadOnly:
		return fmt.Errorf("it is mounted there with other access (read-only: %v): %w", at.ReadOnly, fault.Conflict)
	case asked != has:
		return fmt.Errorf("it is mounted there with other options (%s): %w", strings.Join(at.Options, ","), fault.Conflict)
	}
	return nil
}

// mountAfresh checks, mounts and grows a filesystem where nothing is mounted. What fails leaves nothing mounted: to
// the kubelet most errors mean that nothing is, and the volume would be detached below the mount.
func (m *Mounter) mountAfresh(ctx context.Context, dev BlockDevice, req MountRequest) error {
	if !req.ReadOnly && req.Filesystem == Ext4 {
		if err := m.checkOffline(ctx, dev); err != nil {
			return err
		}
	}
	made, err := ensureDir(req.Target)
	if err != nil {
		return err
	}
	err = m.mountNow(ctx, dev, req)
	if err == nil && !req.ReadOnly {
		err = m.growStaged(ctx, dev, req.Target, req.Filesystem)
	}
	if err != nil {
		return m.undo(req.Target, made, err)
	}
	return nil
}

// mountNow mounts and proves by number that it is the device that got mounted.
func (m *Mounter) mountNow(ctx context.Context, dev BlockDevice, req MountRequest) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	options := withPolicy(req.Filesystem, req.Options)
	if req.ReadOnly {
		options = append([]string{"ro"}, options...)
	}
	args := []string{"-t", string(req.Filesystem)}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	// The kernel does not give the name to another disk while we hold this one open. The command is
	// not bound to ctx: a mount that replays a long journal cannot be interrupted anyway.
	out, err := m.runAlone(context.WithoutCancel(ctx), Command{Name: "mount", Args: append(args, dev.Path(), req.Target)})
	switch {
	case err != nil:
		return err
	case out.ExitCode != 0:
		return fmt.Errorf("%w: mount ended with code %d: %s (see also the kernel log)", fault.Precondition, out.ExitCode, out.Tail())
	}
	at, ok, err := m.MountAt(req.Target)
	switch {
	case err != nil:
		return err
	case !ok || at.Device != dev.Number():
		return fmt.Errorf("%w: what got mounted is not the volume's device", fault.Precondition)
	case at.ReadOnly != req.ReadOnly:
		// The kernel mounts a damaged or write-protected device read-only without an error.
		return fmt.Errorf("%w: it could be mounted read-only only (see the kernel log)", fault.Precondition)
	}
	return nil
}

// checkOffline runs e2fsck. A filesystem that is mounted elsewhere is left alone.
func (m *Mounter) checkOffline(ctx context.Context, dev BlockDevice) error {
	x, err := openExclusive(ctx, dev.File())
	if errors.Is(err, errInUse) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = x.Close() // e2fsck wants it exclusively too
	return m.check(ctx, dev.File())
}
