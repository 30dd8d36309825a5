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

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// errInUse: the device is mounted in some mount namespace or open exclusively.
var errInUse = errors.New("it is mounted or in exclusive use")

// goneWait is how long Release waits for other programs, such as udev's probing, to close the device.
const goneWait = 5 * time.Second

// flush writes back the cache of a volume's loop device. It may take long, so it runs before the pool's lock is acquired.
func (l *loop) flush(ctx context.Context, id pool.ID) error {
	candidates, err := l.candidates(id)
	if err != nil {
		return err
	}
	for _, c := range candidates {
		err := l.guard.run(ctx, c.name, flushBound, func(context.Context) error {
			f, err := l.openNode(c.name, os.O_RDONLY)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		})
		if err != nil && !isGone(err) {
			return fmt.Errorf("write the last data of %s: %w: %w", c.name, fault.Unavailable, err)
		}
	}
	return nil
}

// detach detaches the image from its loop devices and returns their names. The caller holds the pool's lock.
func (l *loop) detach(ctx context.Context, id pool.ID) ([]string, error) {
	image, err := inodeOf(l.pool.ImagePath(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	candidates, err := l.candidates(id)
	if err != nil {
		return nil, err
	}
	var detached []string
	for _, c := range candidates {
		err := l.guard.run(ctx, c.name, openBound, func(ctx context.Context) error { return l.clear(ctx, c, image) })
		if isGone(err) || errors.Is(err, errOtherFile) {
			continue
		}
		if err != nil {
			return nil, err
		}
		detached = append(detached, c.name)
	}
	return detached, nil
}

// clear makes the kernel close the file of a loop device. It opens the device exclusively first, which fails while the device
// is mounted; the kernel would only mark a mounted device to be detached at a later close.
func (l *loop) clear(ctx context.Context, c candidate, image inode) error {
	f, err := l.openNode(c.name, os.O_RDONLY|unix.O_EXCL)
	switch {
	case isGone(err):
		return err
	case errors.Is(err, unix.EBUSY):
		if other := l.checkFile(c, image); other != nil {
			return other
		}
		number, err := l.number(c.name)
		if err != nil {
			return err
		}
		return fmt.Errorf("%s: %w: %s: %w", c.name, errInUse, holderOf(number), fault.Busy)
	case err != nil:
		return fmt.Errorf("open %s: %w: %w", c.name, fault.Unavailable, err)
	}
	// The kernel detaches at the last close, which is this one unless other programs have the device open.
	defer func() { _ = f.Close() }()
	if !c.unlinked {
		if err := standsOn(f, image); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write the last data of %s: %w: %w", c.name, fault.Unavailable, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !isGone(err) {
		return fmt.Errorf("detach %s: %w: %w", c.name, fault.Unavailable, err)
	}
	return nil
}

// checkFile returns an error if a loop device that is in exclusive use is not the image's.
func (l *loop) checkFile(c candidate, image inode) error {
	if c.unlinked {
		return nil
	}
	f, err := l.openNode(c.name, os.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(standsOn(f, image), f.Close())
}

// waitGone waits until a loop device no longer has the image as its file.
func (l *loop) waitGone(ctx context.Context, name string, id pool.ID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, goneWait, fault.Busy)
	defer cancel()
	for {
		candidates, err := l.candidates(id)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(candidates, func(c candidate) bool { return c.name == name }) {
			return nil
		}
		if wait.Sleep(ctx, 4*racePause) == nil {
			continue
		}
		if errors.Is(context.Cause(ctx), fault.Busy) {
			return fmt.Errorf("%s is still open in another program; it is detached when that closes it: %w", name, fault.Busy)
		}
		return ctx.Err()
	}
}
