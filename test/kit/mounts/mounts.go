// Package mounts unmounts for tests and demonstrations.
package mounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a mount may be in use: a program that another test starts holds a copy of every open file,
// closed ones too, from its fork to its exec.
const patience = 5 * time.Second

// Unmount unmounts the topmost mount at a path, and tries again for a while as long as it is in use. A mount that is
// still in use then is unix.EBUSY, a path without a mount is unix.EINVAL.
func Unmount(path string) error {
	tries := time.NewTicker(10 * time.Millisecond)
	defer tries.Stop()
	end := time.After(patience)
	for {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
		select {
		case <-tries.C:
		case <-end:
			return fmt.Errorf("unmount %s: %w after %v", path, err, patience)
		}
	}
}

// separate unmounts the mounts below the folder $1, except those below $2, and runs the rest of its arguments.
const separate = `awk -v all="$1/" -v own="$2/" 'index($5, all) == 1 && (own == "/" || index($5 "/", own) != 1) { print $5 }' /proc/self/mountinfo |
	sort -r | xargs -r umount -l
shift 2
exec "$@"`

// Separate returns a command that runs in a private mount namespace. The namespace starts with a copy of every mount of the
// machine; the copies of other tests' mounts, those below os.TempDir() and not own or below it (empty: all), are unmounted before the
// command runs: as long as they exist, the devices are in use and the other tests cannot unstage their volumes.
func Separate(ctx context.Context, own string, args ...string) *exec.Cmd {
	script := append([]string{"--mount", "--propagation", "private", "sh", "-c", separate, "sh", os.TempDir(), own}, args...)
	return exec.CommandContext(ctx, "unshare", script...)
}
