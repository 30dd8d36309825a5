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

// Flush writes everything of the filesystem that is mounted at a path to its device: an unmount does so only where no
// other mount of that filesystem is left. A path where no filesystem is mounted needs nothing.
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

// Unmount unmounts what the state holds, and nothing that was mounted over it meanwhile or lies below it. A mount that
// is in use stays as it is and is fault.Busy.
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

// unmount unmounts the mount of that id, which is topmost at the target.
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

// untilUnmounted is how often a mount that is in use is unmounted: a statfs, or a reading of all mounts, uses it for a
// moment only.
var untilUnmounted = wait.Every(20*time.Millisecond, 10)

func (t target) unmountTop(ctx context.Context) error {
	busy := func(err error) bool { return errors.Is(err, unix.EBUSY) }
	return untilUnmounted.Retry(ctx, busy, func() error {
		// umount(8) would resolve the path anew, and its links; this follows none below the descriptor.
		return unix.Unmount(fmt.Sprintf("/proc/self/fd/%d/%s", t.dir, t.name), unix.UMOUNT_NOFOLLOW)
	})
}
