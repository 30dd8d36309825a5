package mounter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// FormatRequest says what EnsureFormatted may do.
type FormatRequest struct {
	// Volume is the id of the volume that the device is.
	Volume string
	// Filesystem is what the caller expects on the device, or wants to be made.
	Filesystem Filesystem
	// MkfsOptions are appended to our own.
	MkfsOptions []string
	// Size is how many bytes were promised; 0 when it is not known.
	Size int64
	// Forbidden devices are never formatted: the use is read-only, or the volume's attributes forbid it.
	Forbidden bool
	// HasContent is set for a volume made from a snapshot or another volume. It is formatted only where
	// History proves that the copy is blank too.
	HasContent bool
	// BlankCreated is set when this driver created the volume blank.
	BlankCreated bool
	// FormatNonZero lets a BlankCreated volume that does not read as zeros be formatted, as long
	// as blkid finds nothing on it.
	FormatNonZero bool
	// History is what is known about the writes to the device. It must be read before EnsureFormatted
	// opens the device, since the answer NeverWritten only ever turns into Written.
	History History
	// Begun, if set, is called when the marker is on the device, before anything else is written to it.
	Begun func(ctx context.Context) error
	// Encrypt makes the header on the disk where Filesystem is LUKS.
	Encrypt func(ctx context.Context, disk *os.File) error
	// Note is set where a note off the device says whether its format has ended.
	Note Note
}

// Note is what a note off the device, such as a token in the LUKS header below it, says about its format.
type Note int

// The notes.
const (
	// NoNote: the device itself is judged.
	NoNote Note = iota
	// Unformatted: no format has ended, so nothing on the device is data. It need not read as zeros.
	Unformatted
	// Formatted: a format has ended, or the device is not ours to format.
	Formatted
)

// History says whether a device was ever written.
type History int

// The histories.
const (
	// HistoryUnknown: a cloud's disk. That it is blank is judged by reading a part of it.
	HistoryUnknown History = iota
	// NeverWritten: no byte was ever written, so all of them read as zeros.
	NeverWritten
	// Written: NeverWritten could be proven here and is not. However blank the device reads, mkfs needs
	// the volume's own marker or FormatNonZero.
	Written
)

// EnsureFormatted returns the filesystem that is on the device, and makes it first if the gate allows
// it: mkfs runs only on a device that was read without an error, on which blkid and our own read find
// nothing, that opens exclusively, and that is still proven to be the volume's. A device with anything
// else on it is fault.Precondition, one that is in use fault.Busy: a volume that is mounted in this
// mount namespace needs no format, and mounting a disk that another namespace has mounted would give a
// pod the files of the machine itself.
//
// A mkfs does not end with ctx. A call after one whose program was killed finds the filesystem, or the
// marker of a mkfs that did not finish, and continues from there.
func (m *Mounter) EnsureFormatted(ctx context.Context, dev BlockDevice, req FormatRequest) (Filesystem, error) {
	if req.Filesystem != LUKS {
		if err := ValidateMkfsOptions(req.Filesystem, req.MkfsOptions); err != nil {
			return "", err
		}
	}
	fs, err := m.ensureFormatted(ctx, dev, req)
	if err != nil {
		return "", fmt.Errorf("format volume %s on %s: %w", req.Volume, dev.Path(), err)
	}
	return fs, nil
}

func (m *Mounter) ensureFormatted(ctx context.Context, dev BlockDevice, req FormatRequest) (Filesystem, error) {
	size, err := checkedSize(dev, req.Size)
	if err != nil {
		return "", err
	}
	x, err := openExclusive(ctx, dev.File())
	if errors.Is(err, errInUse) {
		return "", fmt.Errorf("%w: it is mounted, perhaps in another mount namespace (unmount it there), or a command of an earlier run still works on it", err)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = x.Close() }() // closed earlier when mkfs takes over
	usable, err := m.decide(ctx, x, size, req)
	if err != nil {
		return "", err
	}
	if usable {
		return req.Filesystem, nil
	}
	work, err := m.prepare(ctx, dev, x, size, req)
	if err != nil {
		return "", err
	}
	return req.Filesystem, work.run(context.WithoutCancel(ctx))
}

// decide reports whether the device has what is asked for; if not, and without an error, mkfs may run.
func (m *Mounter) decide(ctx context.Context, x exclusive, size int64, req FormatRequest) (usable bool, err error) {
	if req.Note != NoNote {
		return m.decideNoted(ctx, x.File, size, req)
	}
	found, err := m.inspect(ctx, x.File, size, req)
	if err != nil || found.usable {
		return found.usable, err
	}
	return false, gate(ctx, x, size, req, found)
}

// decideNoted is decide for a device whose note stands elsewhere. Behind encryption a blank disk reads as random bytes,
// so zeros prove nothing: blkid decides.
func (m *Mounter) decideNoted(ctx context.Context, f *os.File, size int64, req FormatRequest) (usable bool, err error) {
	super, err := primary(f)
	if err != nil {
		return false, err
	}
	id, err := m.blkid(ctx, f)
	if err != nil {
		return false, err
	}
	complete := super == req.Filesystem && id == identity{filesystem: string(req.Filesystem)}
	switch {
	case req.Note == Formatted && complete:
		return true, nil
	case req.Note == Formatted:
		return false, fmt.Errorf("%w: nothing says that it was never formatted, and found on it is %s, not %s; it is left as it is",
			fault.FormatContent, id, req.Filesystem)
	case !id.nothing() && !id.is(req.Filesystem):
		return false, fmt.Errorf("%w: it was never formatted, and yet found on it is %s; it is left as it is", fault.FormatContent, id)
	}
	if complete {
		// The note is removed before the first mount, so with it only a mount by hand makes this true.
		if usable, err = everMounted(f, size, super); err != nil || usable {
			return usable, err
		}
	}
	if req.Forbidden {
		return false, fmt.Errorf("%w: there is no %s on it, and a read-only volume, or one whose attributes forbid it, is never formatted",
			fault.FormatForbidden, req.Filesystem)
	}
	return false, nil
}

// inspection is what the first read of a device found.
type inspection struct {
	usable  bool       // the device carries the expected filesystem, and no marker counts
	blkid   identity   // the answer of blkid
	primary Filesystem // the filesystem whose primary superblock is on the device
	marker  *marker
}

// inspect reads what decides about a device in the usual case: blkid, the primary superblock and the
// marker. It refuses a device on which blkid and our own read disagree.
//
// A marker never counts on a filesystem that was ever mounted: a pod can write one into its own file. On
// one that was never mounted it does, since blkid names a filesystem long before its mkfs ends, and a
// power cut can tear one whose mkfs has ended.
func (m *Mounter) inspect(ctx context.Context, f *os.File, size int64, req FormatRequest) (inspection, error) {
	var out inspection
	var err error
	if out.primary, err = primary(f); err != nil {
		return out, err
	}
	if out.blkid, err = m.blkid(ctx, f); err != nil {
		return out, err
	}
	complete := out.primary == req.Filesystem && out.blkid == identity{filesystem: string(req.Filesystem)}
	mounted, err := everMounted(f, size, out.primary)
	if err != nil {
		return out, err
	}
	if mounted {
		out.usable = complete
		return out, out.unexpected(req)
	}
	switch k, err := readMarker(f, size); {
	case errors.Is(err, errNoMarker):
		out.usable = complete
		return out, out.unexpected(req)
	case err != nil:
		return out, err
	default:
		out.marker = &k
		return out, nil
	}
}

// unexpected refuses a device on which blkid or our own read finds anything but the expected
// filesystem, or on which they disagree.
func (i inspection) unexpected(req FormatRequest) error {
	switch {
	case i.usable || i.blkid.nothing() && i.primary == "":
		return nil
	case !i.blkid.nothing() && i.blkid.filesystem != string(req.Filesystem) || i.blkid.partitions != "":
		return fmt.Errorf("%w: found on it: %s, not %s; it is left as it is", fault.FormatContent, i.blkid, req.Filesystem)
	}
	advice := "fsck"
	if i.primary == LUKS || i.blkid.filesystem == string(LUKS) {
		advice = "cryptsetup repair"
	}
	return fmt.Errorf("%w: blkid finds %s and the superblocks say %q; it may be damaged and is left as it is (check it with %s)",
		fault.FormatDamaged, i.blkid, i.primary, advice)
}

// minEncrypted is the smallest device that is encrypted: luksFormat overwrites the first 16 MiB, and copies of the marker
// must stand behind them.
const minEncrypted = 64 * mib

// gate decides whether mkfs may run; nil means that it may.
func gate(ctx context.Context, x exclusive, size int64, req FormatRequest, found inspection) error {
	switch {
	case req.Filesystem == LUKS && size < minEncrypted:
		return fmt.Errorf("%w: it has %d bytes, and an encrypted volume has at least %d", fault.DeviceTooSmall, size, minEncrypted)
	case req.Forbidden:
		return fmt.Errorf("%w: there is no %s on it, and a read-only volume, or one whose attributes forbid it, is never formatted",
			fault.FormatForbidden, req.Filesystem)
	case req.HasContent && req.History == HistoryUnknown:
		return fmt.Errorf("%w: there is no %s on it, and a volume made from a snapshot or another volume is never formatted",
			fault.FormatForbidden, req.Filesystem)
	}
	nonZero, err := probe(ctx, x, size)
	if err != nil {
		return err
	}
	if found.marker != nil {
		return resumable(req, size, found)
	}
	return blank(req, nonZero)
}

// resumable allows mkfs again on a device that a killed mkfs of this volume left behind.
func resumable(req FormatRequest, size int64, found inspection) error {
	k := *found.marker
	switch {
	case k.volume != req.Volume:
		return fmt.Errorf("%w: it holds an unfinished format of another volume, %s", fault.FormatUnfinished, k.volume)
	case k.filesystem != req.Filesystem:
		return fmt.Errorf("%w: it holds an unfinished format as %s, not %s", fault.FormatUnfinished, k.filesystem, req.Filesystem)
	case k.size > size:
		return fmt.Errorf("%w: it had %d bytes when its format began and has %d now", fault.FormatUnfinished, k.size, size)
	case !found.blkid.nothing() && !found.blkid.is(k.filesystem):
		return fmt.Errorf("%w: it holds an unfinished format and also: %s", fault.FormatContent, found.blkid)
	}
	return nil
}

// blank allows mkfs on a device that was never written, or where that cannot be proven, on one that
// reads as zeros wherever it was probed.
func blank(req FormatRequest, nonZero int64) error {
	switch {
	case req.FormatNonZero && req.BlankCreated:
	case nonZero >= 0:
		return fmt.Errorf("%w: blkid finds nothing on it, but it is not blank (first data at offset %d)%s",
			fault.FormatNotBlank, nonZero, nonZeroAdvice(req))
	case req.History == Written:
		return fmt.Errorf("%w: blkid finds nothing on it, but it was written to, so it may hold data%s", fault.FormatNotBlank, nonZeroAdvice(req))
	}
	return nil
}

// nonZeroAdvice names the way out for a volume that formatNonZero applies to.
func nonZeroAdvice(req FormatRequest) string {
	switch {
	case !req.BlankCreated:
		return ""
	case req.History == HistoryUnknown:
		return "; if the cloud's fresh disks do not read as zeros, set formatNonZero in the class"
	}
	return "; if nothing on it is needed, create a new volume"
}

// is says whether blkid found only fs. To blkid an unfinished ext4 may be ext2 or ext3.
func (i identity) is(fs Filesystem) bool {
	if i.partitions != "" {
		return false
	}
	return i.filesystem == string(fs) || fs == Ext4 && strings.HasPrefix(i.filesystem, "ext")
}

// checkedSize reads the size from the descriptor and compares it with the promise.
func checkedSize(dev BlockDevice, promised int64) (int64, error) {
	size, err := dev.Size()
	if err != nil {
		return 0, err
	}
	if size < promised {
		return 0, fmt.Errorf("%w: it has %d bytes but %d were promised", fault.DeviceTooSmall, size, promised)
	}
	return size, nil
}
