package mounter

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

const (
	// alonePause is the pause after a program found its device in use.
	alonePause = 50 * time.Millisecond
	// maxAlone is how often the program is tried.
	maxAlone = 20
)

// busyWords are how mke2fs, e2fsck, mkfs.xfs, mkfs.btrfs and mount say that the device is open
// exclusively. They say it before they write anything.
var busyWords = [][]byte{
	[]byte("is in use"), []byte("apparently in use"), []byte("resource busy"), []byte("mount point busy"),
}

// runAlone runs a program that opens its device exclusively. A free device is in use for moments all the
// same: a forked child that has not executed its program yet holds copies of this process's descriptors, and
// a program that searches for a free loop device claims it before the kernel answers that it is taken. So
// the program is tried for a while, and then it is fault.Busy.
func (m *Mounter) runAlone(ctx context.Context, cmd Command) (Output, error) {
	return alone(ctx, cmd.Name, func() (Output, error) { return m.run.Run(ctx, cmd) })
}

func alone(ctx context.Context, name string, run func() (Output, error)) (Output, error) {
	for try := 1; ; try++ {
		out, err := run()
		if err != nil || out.ExitCode == 0 || !saysBusy(out) {
			return out, err
		}
		if try == maxAlone {
			return out, fmt.Errorf("%s: another program has the device open exclusively; try again: %s: %w", name, out.Tail(), fault.Busy)
		}
		pause := time.NewTimer(alonePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return out, fmt.Errorf("%s: %w: %w", name, fault.Busy, ctx.Err())
		}
	}
}

func saysBusy(out Output) bool {
	for _, words := range busyWords {
		if bytes.Contains(out.Stderr, words) || bytes.Contains(out.Stdout, words) {
			return true
		}
	}
	return false
}
