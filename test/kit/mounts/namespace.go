package mounts

import (
	"context"
	"os"
	"os/exec"
)

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
