package format

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// blkidNothing is blkid's exit code for "nothing found". blkid also returns it for a device that it cannot read, so the gate
// reads the device too.
const (
	blkidNothing   = 2
	blkidAmbiguous = 8
)

// identity is what blkid found on a device.
type identity struct {
	filesystem string // TYPE: a filesystem, a RAID or LVM member, swap, LUKS
	partitions string // PTTYPE
	unfinished bool   // an xfs whose mkfs has not ended
}

// nothing reports whether blkid found nothing.
func (i identity) nothing() bool { return i == identity{} }

// String returns what was found, for messages.
func (i identity) String() string {
	switch {
	case i.nothing():
		return "nothing"
	case i.unfinished:
		return "an unfinished " + i.filesystem
	case i.partitions == "":
		return i.filesystem
	case i.filesystem == "":
		return i.partitions + " partition table"
	}
	return i.filesystem + " and a " + i.partitions + " partition table"
}

// parseBlkid parses the output of blkid -o export. It refuses output without any type, because blkid prints only what it has
// found.
func parseBlkid(out string) (identity, error) {
	var id identity
	for line := range strings.Lines(out) {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
		if !ok || value == "" {
			continue
		}
		into := map[string]*string{"TYPE": &id.filesystem, "PTTYPE": &id.partitions}[key]
		switch {
		case into == nil:
		case *into != "" && *into != value:
			return identity{}, fmt.Errorf("blkid names two kinds, %q and %q: %w", *into, value, fault.FormatDamaged)
		default:
			*into = value
		}
	}
	if id.nothing() {
		return identity{}, fmt.Errorf("blkid found something and does not say what: %w", fault.FormatContent)
	}
	return id, nil
}

// errSeveral is the error of blkid for a device with several signatures.
var errSeveral = fmt.Errorf("blkid sees signatures of more than one format: %w", fault.FormatContent)

// identify returns what blkid finds. A CD has its signature at 32 KiB, where on an xfs a file may lie, such as the image of one
// (util-linux/util-linux#4031). It does not count after the superblock super of the volume's filesystem, which a CD would have overwritten.
// With a record of a format no pod has had the volume.
func (f *Formatter) identify(ctx context.Context, dev *os.File, super mounter.Filesystem, begun Begun) (identity, error) {
	id, err := f.blkid(ctx, dev)
	if errors.Is(err, errSeveral) && super != "" && begun == NotBegun {
		if rest, restErr := f.blkid(ctx, dev, "-n", "noiso9660,noudf"); restErr == nil && rest == (identity{filesystem: string(super)}) {
			return rest, nil
		}
	}
	return id, err
}

// blkid runs blkid on an open device. It bypasses blkid's cache, and it passes the descriptor, so no name is resolved.
func (f *Formatter) blkid(ctx context.Context, dev *os.File, options ...string) (identity, error) {
	out, err := f.programs.Run(ctx, host.Command{
		Name: "blkid", Args: slices.Concat([]string{"-p", "-o", "export"}, options, []string{host.ChildFile}), Files: []*os.File{dev},
	})
	if err != nil {
		return identity{}, err
	}
	switch out.ExitCode {
	case 0:
		return parseBlkid(string(out.Stdout))
	case blkidNothing:
		if len(out.Stdout) == 0 {
			return identity{}, nil
		}
	case blkidAmbiguous:
		return identity{}, errSeveral
	}
	return identity{}, fmt.Errorf("blkid ended with code %d, which proves nothing: %w: %s", out.ExitCode, fault.DeviceUnreadable, out.Tail())
}

// Identify returns the filesystem on a device. A device without one is fault.FormatDamaged, anything else fault.FormatContent.
func (f *Formatter) Identify(ctx context.Context, dev *os.File) (mounter.Filesystem, error) {
	super, err := primary(dev)
	if err != nil {
		return "", err
	}
	id, err := f.identify(ctx, dev, super, NotBegun)
	switch {
	case err != nil:
		return "", err
	case id == identity{filesystem: string(super)} && super != "" && super != mounter.LUKS:
		return super, nil
	case id.nothing() && super == "":
		return "", fmt.Errorf("no filesystem is found on it: %w", fault.FormatDamaged)
	case id.nothing():
		return "", fmt.Errorf("the superblock is one of %s, and it is damaged: %w", super, fault.FormatDamaged)
	}
	return "", fmt.Errorf("found on it: %s, and neither ext4 nor xfs alone: %w", id, fault.FormatContent)
}
