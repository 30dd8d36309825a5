package mount

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// Stats is the usage of a filesystem.
type Stats struct {
	TotalBytes, UsedBytes, AvailableBytes    int64
	TotalInodes, UsedInodes, AvailableInodes int64
}

// Stats returns the usage of a mounted filesystem, within answerTime.
func (m *Mounter) Stats(ctx context.Context, at Mount) (Stats, error) {
	read := make(chan Stats, 1) // not a variable: a call that has lost its caller still sets it
	err := m.listings.Run(ctx, strconv.Itoa(at.ID), answerTime, func(context.Context) error {
		st, err := FilesystemStats(at.Mountpoint)
		if err == nil {
			err = at.Stays()
		}
		read <- st
		return err
	})
	if errors.Is(err, wait.ErrNoAnswer) {
		return Stats{}, fmt.Errorf("read the usage of the filesystem at %s: %w: %w", at.Mountpoint, fault.Unavailable, err)
	}
	return <-read, err
}

// Stays proves that the mount is still the topmost at its path: what was read there before is of its filesystem. It
// does not touch the filesystem.
func (m Mount) Stays() error {
	fd, err := unix.Open(m.Mountpoint, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look at %s: %w: %w", m.Mountpoint, fault.Unavailable, err)
	}
	defer func() { _ = unix.Close(fd) }()
	id, err := mountID(fd)
	if err == nil && id != m.ID {
		err = fmt.Errorf("the filesystem at %s was unmounted meanwhile: %w", m.Mountpoint, fault.Unavailable)
	}
	return err
}

// FilesystemStats returns the usage of the filesystem at path.
func FilesystemStats(path string) (Stats, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Stats{}, fmt.Errorf("read the usage of the filesystem at %s: %w: %w", path, fault.Unavailable, err)
	}
	return Stats{
		TotalBytes:      int64(st.Blocks) * st.Frsize,
		UsedBytes:       int64(st.Blocks-st.Bfree) * st.Frsize,
		AvailableBytes:  int64(st.Bavail) * st.Frsize,
		TotalInodes:     int64(st.Files),
		UsedInodes:      int64(st.Files - st.Ffree),
		AvailableInodes: int64(st.Ffree),
	}, nil
}
