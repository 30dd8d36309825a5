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

// CheckOffline runs e2fsck, unless the filesystem is mounted elsewhere.
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

// e2fsckUncorrected is the lowest exit code of e2fsck for errors that it did not repair. 0 is clean, the bits 1 and 2 are
// repaired.
const e2fsckUncorrected = 4

// check repairs what e2fsck repairs without questions (-p) and refuses everything else. Only ext4 is checked before a mount:
// fsck.xfs does nothing by design, the kernel replays the log.
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
