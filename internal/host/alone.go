package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// untilAlone is how often a program is tried that has found its device in use.
var untilAlone = wait.Every(50*time.Millisecond, 20)

// busyWords are how mke2fs, e2fsck, mkfs.xfs and mount say that the device is open
// exclusively. They say it before they write anything.
var busyWords = [][]byte{
	[]byte("is in use"), []byte("apparently in use"), []byte("resource busy"), []byte("mount point busy"),
}

// RunAlone runs a program that opens its device exclusively. A free device is in use for moments all the
// same: a forked child that has not executed its program yet holds copies of this process's descriptors, and
// a program that searches for a free loop device claims it before the kernel answers that it is taken. So
// the program is tried for a while, and then it is fault.Busy.
func RunAlone(ctx context.Context, r Runner, cmd Command) (Output, error) {
	return Alone(ctx, cmd.Name, func() (Output, error) { return r.Run(ctx, cmd) })
}

// Alone is RunAlone for a program of that name which run runs.
func Alone(ctx context.Context, name string, run func() (Output, error)) (out Output, err error) {
	busy := func(err error) bool { return errors.Is(err, errSaysBusy) }
	err = untilAlone.Retry(ctx, busy, func() error {
		if out, err = run(); err == nil && out.ExitCode != 0 && saysBusy(out) {
			err = fmt.Errorf("%s: %w; try again: %s: %w", name, errSaysBusy, out.Tail(), fault.Busy)
		}
		return err
	})
	return out, err
}

var errSaysBusy = errors.New("another program has the device open exclusively")

func saysBusy(out Output) bool {
	for _, words := range busyWords {
		if bytes.Contains(out.Stderr, words) || bytes.Contains(out.Stdout, words) {
			return true
		}
	}
	return false
}
