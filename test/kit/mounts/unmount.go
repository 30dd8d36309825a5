// Package mounts unmounts for tests and demonstrations.
package mounts

import (
	"errors"
	"fmt"
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
