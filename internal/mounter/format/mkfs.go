package format

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// mkfs is a mkfs that the gate has allowed.
type mkfs struct {
	f    *Formatter
	file *os.File // the device, a descriptor of its own for writing
	req  Request
}

// prepare proves the device's identity and size for the last time and records that the format begins.
func (f *Formatter) prepare(ctx context.Context, dev mounter.BlockDevice, x host.Exclusive, size int64, req Request) (*mkfs, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	if err := dev.Verify(ctx); err != nil {
		return nil, err
	}
	switch now, err := checkedSize(dev, req.Size); {
	case err != nil:
		return nil, err
	case now != size:
		return nil, fmt.Errorf("%w: its size changed from %d to %d bytes while it was read", fault.Unavailable, size, now)
	}
	// Before Begin: that may also record in the pool that the device was written, and after it left the node no format would be allowed.
	if _, err := exec.LookPath(mkfsProgram(req)); err != nil && req.Filesystem != mounter.LUKS {
		return nil, fmt.Errorf("%w: the program is not installed: %w", fault.ProgramMissing, err)
	}
	writable, err := host.Reopen(dev.File(), unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	if req.Begin != nil {
		if err := req.Begin(ctx); err != nil {
			_ = writable.Close()
			return nil, err
		}
	}
	// mkfs opens the device exclusively itself.
	_ = x.Close()
	return &mkfs{f: f, file: writable, req: req}, nil
}

// run makes the filesystem and reads it back from the device.
func (k *mkfs) run(ctx context.Context) error {
	defer func() { _ = k.file.Close() }()
	if err := k.make(ctx); err != nil {
		return err
	}
	x, err := host.OpenExclusive(ctx, k.file)
	if err != nil {
		return err
	}
	defer func() { _ = x.Close() }()
	found, err := primary(x)
	if err != nil {
		return err
	}
	id, err := k.f.blkid(ctx, x.File)
	if err != nil {
		return err
	}
	if found != k.req.Filesystem || id != (identity{filesystem: string(found)}) {
		return fmt.Errorf("%w: the format made %s where %s was wanted (check the class's mkfsOptions)",
			fault.FormatFailed, id, k.req.Filesystem)
	}
	return nil
}

// prezeroed is the option of mkfs.ext4 for a device that reads as zeros.
const prezeroed = "assume_storage_prezeroed"

// make runs the program that makes the filesystem, or the header of an encrypted device.
func (k *mkfs) make(ctx context.Context) error {
	if k.req.Filesystem == mounter.LUKS {
		return k.req.Encrypt(ctx, k.file)
	}
	cmd := mkfsCommand(k.req)
	cmd.Files = []*os.File{k.file}
	out, err := host.RunAlone(ctx, k.f.programs, cmd)
	if err == nil && out.ExitCode != 0 && k.req.History == NeverWritten && bytes.Contains(out.Stderr, []byte("Bad option(s) specified: "+prezeroed)) {
		k.req.History = HistoryUnknown // e2fsprogs before 1.47: it has written nothing, and writes the zeros now
		return k.make(ctx)
	}
	switch {
	case err != nil:
		return err
	case out.ExitCode != 0:
		return fmt.Errorf("%w: %s ended with code %d: %s", fault.FormatFailed, cmd.Name, out.ExitCode, out.Tail())
	}
	return nil
}

// mkfsCommand returns the command. With force, because the gate has decided, and mkfs would stop at what a killed mkfs has
// written. Without discard: on a pool it would free reserved space, on a cloud's disk it takes minutes, and the disk is blank.
//
// ext4 reserves no blocks for root (-m 0), as the large drivers do: pods often do not run as root and could not use these 5 %.
// On errors it becomes read-only (-e remount-ro) and does not write on.
//
// xfs gets no large extent counters unless the class asks for them: mkfs.xfs 6.5 and newer sets them, and a
// kernel before 5.19 refuses to mount what has them, so the volume could not move to such a node.
func mkfsCommand(req Request) host.Command {
	args, options := []string{"-f", "-K"}, req.MkfsOptions
	if req.Filesystem == mounter.Ext4 {
		// mke2fs keeps only the last -E, so ours and the class's become one; the class's -e wins.
		extended := []string{"nodiscard"}
		if req.History == NeverWritten {
			extended = append(extended, prezeroed+"=1") // there is nothing to write
		}
		var theirs []string
		options, theirs = splitExtended(options)
		args = []string{"-F", "-m", "0", "-e", "remount-ro", "-E", strings.Join(append(extended, theirs...), ",")}
	}
	if req.Filesystem == mounter.XFS && !slices.ContainsFunc(options, func(o string) bool { return strings.Contains(o, "nrext64") }) {
		args = append(args, "-i", "nrext64=0")
	}
	return host.Command{
		Name: mkfsProgram(req),
		Args: slices.Concat(args, options, []string{host.ChildFile}),
	}
}

func mkfsProgram(req Request) string { return "mkfs." + string(req.Filesystem) }
