package mount

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Stats is the usage of a filesystem.
type Stats struct {
	TotalBytes, UsedBytes, AvailableBytes    int64
	TotalInodes, UsedInodes, AvailableInodes int64
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
