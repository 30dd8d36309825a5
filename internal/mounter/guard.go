package mounter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// GuardArgument is the first argument of a node program that is to be a guard: see RunGuard.
const GuardArgument = "thaw-guard"

const (
	guardFrozen = "frozen"
	// guardFile is the descriptor of the mount in the guard.
	guardFile = 3
	// answerEnd is how long removing the answer may keep the guard from thawing.
	answerEnd = time.Second
)

// RunGuard is the life of a guard: it freezes the filesystem of descriptor 3, says so on standard
// output, and thaws when its standard input ends, when its time is over, or when a signal tells it to
// end. Its arguments are that time and the file to remove before it thaws, which may be empty. It
// takes no lock, needs no memory of its parent's and opens nothing that could be frozen.
func RunGuard(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("the guard of a frozen filesystem is started by the node program only (got %q)", args)
	}
	limit, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	// A parent that died must not take the guard along when that says that it is done.
	signal.Ignore(unix.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	// What is dirty is written before writers are stopped: a freeze alone would stop them first.
	err = unix.Syncfs(guardFile)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = unix.IoctlSetInt(guardFile, fiFreeze, 0)
	}
	if err != nil {
		fmt.Println(err)
		return nil // the parent says it, in its own words
	}
	fmt.Println(guardFrozen)
	<-ctx.Done()
	removeAnswer(args[1])
	return guardThaw()
}

// removeAnswer takes back the word that the filesystem is frozen. A disk that does not answer must
// not keep a filesystem frozen: whoever would read the word there does not get an answer either.
func removeAnswer(path string) {
	if path == "" {
		return
	}
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		_ = os.Remove(path)
	}()
	late := time.NewTimer(answerEnd)
	defer late.Stop()
	select {
	case <-removed:
	case <-late.C:
	}
}

// guardThaw thaws, and tries again while the kernel cannot.
func guardThaw() error {
	const tries = 50
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for try := 1; ; try++ {
		err := unix.IoctlSetInt(guardFile, fiThaw, 0)
		if err == nil || errors.Is(err, unix.EINVAL) { // somebody else was faster
			return nil
		}
		if try == tries {
			return fmt.Errorf("thaw: %w", err)
		}
		<-tick.C
	}
}
