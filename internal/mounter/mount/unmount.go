package mount

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Flush writes back the filesystem that is mounted at a path, if any: an unmount does so only if the filesystem is mounted nowhere
// else.
func Flush(at State) error {
	if at.Use == Free || at.Block {
		return nil
	}
	dir, err := unix.Open(at.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Syncfs(dir), unix.Close(dir))
	}
	if err != nil {
		return fmt.Errorf("write what is cached of %s at %s: %w: %w", at.Mount.Source, at.Path, fault.Unavailable, err)
	}
	return nil
}

// Unmount unmounts the mount of the state, but nothing that was mounted over it meanwhile or below it. A mount that is in use is
// fault.Busy and stays.
func (m *Mounter) Unmount(ctx context.Context, at State) error {
	if at.Use == Free {
		return nil
	}
	t, err := m.open(at.asked)
	if err != nil {
		return err
	}
	defer t.close()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("unmount %s: %w: %w", t.path, fault.Unavailable, err)
	}
	return t.unmount(ctx, at.Mount.ID)
}

// unmount unmounts the mount with this id, which must be the topmost at the target.
func (t target) unmount(ctx context.Context, id int) error {
	top, err := t.mountID()
	if err == nil && top != id {
		err = fmt.Errorf("another mount is there by now: %w", fault.Unavailable)
	}
	if err == nil {
		err = t.unmountTop(ctx)
	}
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("unmount %s: %w: a process still uses files in it (fuser -m shows which): %w", t.path, fault.Busy, err)
	case errors.As(err, new(unix.Errno)):
		return fmt.Errorf("unmount %s: %w: %w", t.path, fault.Unavailable, err)
	case err != nil:
		return fmt.Errorf("unmount %s: %w", t.path, err)
	}
	return nil
}

// untilUnmounted repeats the unmount of a mount that is in use: a statfs, or a reading of all mounts, uses it only for a
// moment.
var untilUnmounted = wait.Every(20*time.Millisecond, 10)

func (t target) unmountTop(ctx context.Context) error {
	busy := func(err error) bool { return errors.Is(err, unix.EBUSY) }
	return untilUnmounted.Retry(ctx, busy, func() error {
		// umount(8) would resolve the path and its links again; this resolves nothing below the descriptor.
		return unix.Unmount(fmt.Sprintf("/proc/self/fd/%d/%s", t.dir, t.name), unix.UMOUNT_NOFOLLOW)
	})
}
