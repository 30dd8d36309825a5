package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// goneWait is how long Release waits for others, such as udev's probing, to close the device.
const goneWait = 5 * time.Second

// detach takes the image off its loop devices and returns their names. Under the pool's lock.
func (l *Loop) detach(id pool.ID) ([]string, error) {
	image, err := inodeOf(l.pool.ImagePath(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	exists := err == nil
	loops, err := l.bound(func(name string) (bool, error) {
		if l.isUnlinked(name, id) {
			return true, nil
		}
		if !exists {
			return false, nil
		}
		return l.isBoundTo(name, image)
	})
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w: %w", fault.Unavailable, err)
	}
	slices.Sort(loops)
	for _, name := range loops {
		if err := l.clear(name); err != nil {
			return nil, err
		}
	}
	return loops, nil
}

// clear tells the kernel to let go of the file. The exclusive open comes first: it fails while the
// device is mounted, where the kernel would only remember the wish and carry it out at some later close.
func (l *Loop) clear(name string) error {
	f, err := l.openNode(name, os.O_RDONLY|unix.O_EXCL)
	switch {
	case isGone(err):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s is mounted or in exclusive use: %w", name, fault.Busy)
	case err != nil:
		return fmt.Errorf("open %s: %w: %w", name, fault.Unavailable, err)
	}
	if err := f.Sync(); err != nil {
		return errors.Join(fmt.Errorf("write the last data of %s: %w: %w", name, fault.Unavailable, err), f.Close())
	}
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !isGone(err) {
		return errors.Join(fmt.Errorf("detach %s: %w: %w", name, fault.Unavailable, err), f.Close())
	}
	// The kernel acts when the last one closes the device, which is this line unless others have it.
	_ = f.Close()
	return nil
}

// waitGone proves that a loop device has let go of the image.
func (l *Loop) waitGone(ctx context.Context, name string, id pool.ID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, goneWait, fault.Busy)
	defer cancel()
	for {
		held, err := l.holds(name, id)
		if err != nil {
			return fmt.Errorf("look at %s: %w: %w", name, fault.Unavailable, err)
		}
		if !held {
			return nil
		}
		if pause(ctx, 4*racePause) == nil {
			continue
		}
		if errors.Is(context.Cause(ctx), fault.Busy) {
			return fmt.Errorf("%s is still open in another program; it is detached when that closes it: %w", name, fault.Busy)
		}
		return ctx.Err()
	}
}

func (l *Loop) holds(name string, id pool.ID) (bool, error) {
	if l.isUnlinked(name, id) {
		return true, nil
	}
	image, err := inodeOf(l.pool.ImagePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return l.isBoundTo(name, image)
}
