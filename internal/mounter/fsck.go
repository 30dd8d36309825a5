package mounter

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// e2fsckUncorrected is the lowest exit code of e2fsck that leaves the filesystem unfit; below it
// are 0, clean, and the bits 1 and 2, repaired.
const e2fsckUncorrected = 4

// check repairs what e2fsck repairs without a decision (-p); everything else is left to a person. Only
// ext4 has something to do before a mount: fsck.xfs does nothing on purpose, the kernel replays the log.
func (m *Mounter) check(ctx context.Context, f *os.File) error {
	out, err := m.runAlone(context.WithoutCancel(ctx), Command{Name: "e2fsck", Args: []string{"-p", childFile}, Files: []*os.File{f}})
	if err != nil {
		return err
	}
	if out.ExitCode >= e2fsckUncorrected {
		return fmt.Errorf("%w: the filesystem is damaged: e2fsck -p ended with code %d: %s (make a snapshot, then run e2fsck on %s by hand)",
			fault.FsckFailed, out.ExitCode, strings.ReplaceAll(out.Tail(), childFile, f.Name()), f.Name())
	}
	return nil
}
