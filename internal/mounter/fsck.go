package mounter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// e2fsckUncorrected is the lowest exit code of e2fsck that leaves the filesystem unfit; below it
// are 0, clean, and the bits 1 and 2, repaired.
const e2fsckUncorrected = 4

// check repairs what can be repaired without asking. Only ext4 has something to do before a mount:
// fsck.xfs and fsck.btrfs do nothing on purpose, their logs are replayed by the kernel.
func (m *Mounter) check(ctx context.Context, f *os.File, force bool) error {
	args := []string{"-p", childFile}
	if force {
		args = []string{"-f", "-p", childFile}
	}
	out, err := m.runAlone(context.WithoutCancel(ctx), Command{Name: "e2fsck", Args: args, Files: []*os.File{f}})
	if err != nil {
		return err
	}
	if out.ExitCode >= e2fsckUncorrected {
		return fmt.Errorf("%w: %w: e2fsck -p ended with code %d and repaired nothing more by itself: %s "+
			"(make a snapshot, then run e2fsck on %s by hand)", fault.Precondition, errUncorrected, out.ExitCode,
			strings.ReplaceAll(out.Tail(), childFile, f.Name()), f.Name())
	}
	return nil
}

// errUncorrected: e2fsck found what it repairs only when it is told to.
var errUncorrected = errors.New("the filesystem is damaged")

// repair lets e2fsck do whatever it thinks best, which may cost data. Only a growth that was killed
// calls for it, because there it is known to cost nothing.
func (m *Mounter) repair(ctx context.Context, f *os.File) error {
	out, err := m.runAlone(ctx, Command{Name: "e2fsck", Args: []string{"-f", "-y", childFile}, Files: []*os.File{f}})
	if err != nil {
		return err
	}
	if out.ExitCode >= e2fsckUncorrected {
		return fmt.Errorf("%w: e2fsck -y ended with code %d after a growth was killed: %s (run it on %s by hand)",
			fault.Precondition, out.ExitCode, strings.ReplaceAll(out.Tail(), childFile, f.Name()), f.Name())
	}
	return m.check(ctx, f, true)
}
