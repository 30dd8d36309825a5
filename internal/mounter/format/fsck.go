package format

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// checkComplete returns fault.FormatUnfinished unless a filesystem on a device with the record of a format is complete. Nothing is
// repaired: a mkfs that was killed may have left a part of it, and data may be in it if the record is wrong.
func (f *Formatter) checkComplete(ctx context.Context, dev mounter.BlockDevice, req Request) error {
	cmd := host.Command{Name: "e2fsck", Args: []string{"-n", "-f", host.ChildFile}, Files: []*os.File{dev.File()}}
	if req.Filesystem == mounter.XFS {
		cmd.Name, cmd.Args = "xfs_repair", []string{"-n", host.ChildFile}
	}
	// Not host.RunAlone: with -n neither opens the device exclusively, and of damaged inodes both say that they are in use.
	out, err := f.programs.Run(ctx, cmd)
	if err != nil {
		return err
	}
	if out.ExitCode != 0 {
		return unfinished(req, fmt.Sprintf("and %s -n says that what is on it is not complete", cmd.Name))
	}
	return nil
}

// e2fsckUncorrected is the lowest exit code of e2fsck for errors that it did not repair. 0 is clean, the bits 1 and 2 are
// repaired.
const e2fsckUncorrected = 4

// check repairs what e2fsck repairs without questions (-p) and refuses everything else. Only ext4 is checked before a mount:
// fsck.xfs does nothing by design, the kernel replays the log.
func (f *Formatter) check(ctx context.Context, dev *os.File) error {
	// It is bounded, because without memory the kernel ends the whole container, and would at each repeat
	// (Azure/local-csi-driver#458).
	out, err := host.RunAlone(context.WithoutCancel(ctx), f.programs, host.Command{
		Name: "e2fsck", Args: []string{"-p", host.ChildFile}, Files: []*os.File{dev}, Bounded: true,
	})
	if err != nil {
		return err
	}
	if out.ExitCode >= e2fsckUncorrected {
		name, isFile := lasting("/sys/block", dev.Name())
		before := "make a snapshot"
		if isFile { // nothing keeps the next stage from using it at the same time
			before += ", scale the workload to zero"
		}
		return fmt.Errorf("%w: the filesystem is damaged: e2fsck -p ended with code %d: %s (%s, then run e2fsck on %s by hand)",
			fault.FsckFailed, out.ExitCode, strings.ReplaceAll(out.Tail(), host.ChildFile, name), before, name)
	}
	return nil
}

// lasting returns the name under which a person finds a disk after the refusal, and whether it is a file. On local, and of an encrypted
// volume, the device is then released, and its name in the kernel may be another volume's.
func lasting(sysBlock, device string) (name string, isFile bool) {
	dir := filepath.Join(sysBlock, filepath.Base(device))
	if file, err := os.ReadFile(filepath.Join(dir, "loop/backing_file")); err == nil {
		return strings.TrimSpace(string(file)), true
	}
	if name, err := os.ReadFile(filepath.Join(dir, "dm/name")); err == nil {
		return "/dev/mapper/" + strings.TrimSpace(string(name)), false
	}
	return device, false
}
