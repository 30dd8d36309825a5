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

// untilAlone repeats a program that has found its device in use.
var untilAlone = wait.Every(50*time.Millisecond, 20)

// busyWords are the messages of mke2fs, e2fsck, mkfs.xfs and mount for a device that is open exclusively. They print them before
// they write anything.
var busyWords = [][]byte{
	[]byte("is in use"), []byte("apparently in use"), []byte("resource busy"), []byte("mount point busy"),
}

// RunAlone runs a program that opens its device exclusively. A free device is in use at times too: a forked child that has not
// executed its program yet has copies of this process's descriptors, and a program that searches for a free loop device holds it
// until the kernel answers that it is taken. So RunAlone repeats the program for a while, and then returns fault.Busy.
func RunAlone(ctx context.Context, r Runner, cmd Command) (Output, error) {
	return Alone(ctx, cmd.Name, func() (Output, error) { return r.Run(ctx, cmd) })
}

// Alone is RunAlone with a function that runs the program of this name.
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
