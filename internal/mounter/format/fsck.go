package format

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// CheckOffline runs e2fsck. A filesystem that is mounted elsewhere is left alone.
func (f *Formatter) CheckOffline(ctx context.Context, dev mounter.BlockDevice) error {
	x, err := host.Hold(ctx, dev.File())
	if errors.Is(err, host.ErrInUse) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = x.Close() // e2fsck wants it exclusively too
	return f.check(ctx, dev.File())
}

// e2fsckUncorrected is the lowest exit code of e2fsck that leaves the filesystem unfit; below it
// are 0, clean, and the bits 1 and 2, repaired.
const e2fsckUncorrected = 4

// check repairs what e2fsck repairs without a decision (-p); everything else is left to a person. Only
// ext4 has something to do before a mount: fsck.xfs does nothing on purpose, the kernel replays the log.
func (f *Formatter) check(ctx context.Context, dev *os.File) error {
	out, err := host.RunAlone(context.WithoutCancel(ctx), f.programs, host.Command{Name: "e2fsck", Args: []string{"-p", host.ChildFile}, Files: []*os.File{dev}})
	if err != nil {
		return err
	}
	if out.ExitCode >= e2fsckUncorrected {
		return fmt.Errorf("%w: the filesystem is damaged: e2fsck -p ended with code %d: %s (make a snapshot, then run e2fsck on %s by hand)",
			fault.FsckFailed, out.ExitCode, strings.ReplaceAll(out.Tail(), host.ChildFile, dev.Name()), dev.Name())
	}
	return nil
}
