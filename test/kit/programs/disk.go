package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Disk makes a filesystem of its own in a sparse file below dir and returns where it is mounted, also
// below dir. Clean of dir takes it away.
func Disk(ctx context.Context, dir, filesystem string, size int64) (string, error) {
	image, mountpoint := filepath.Join(dir, filesystem+".img"), filepath.Join(dir, filesystem)
	if err := errors.Join(os.MkdirAll(mountpoint, 0o700), os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
		return "", err
	}
	if _, err := output(ctx, "mkfs."+filesystem, "-q", image); err != nil {
		return "", err
	}
	loop, err := output(ctx, "losetup", "--direct-io=on", "--find", "--show", image)
	if err == nil {
		_, err = output(ctx, "mount", strings.TrimSpace(loop), mountpoint)
	}
	return mountpoint, err
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return string(out), nil
}
