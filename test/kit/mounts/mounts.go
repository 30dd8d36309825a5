// Package mounts unmounts for tests and demonstrations, and has what tests ask of mounts.
package mounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
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

// GrowsExt4 reports whether this process has CAP_SYS_RESOURCE, without which the kernel grows no mounted ext4.
func GrowsExt4(t testing.TB) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
	return sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// NeedsToGrow skips a test of ext4 where the kernel refuses to grow it.
func NeedsToGrow(t testing.TB, filesystem string) {
	t.Helper()
	if filesystem == "ext4" && !GrowsExt4(t) {
		t.Skip("left out: this root lacks CAP_SYS_RESOURCE, without which the kernel grows no mounted ext4; it runs in the virtual machine (make e2e-vm)")
	}
}
