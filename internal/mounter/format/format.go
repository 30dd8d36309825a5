// Package format decides whether a device may be formatted, and makes filesystems and checks them.
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

// Formatter makes and checks filesystems. It is safe for concurrent use, but the caller lets only one call at a time
// work on a device.
type Formatter struct{ programs host.Runner }

// New returns a Formatter that runs programs by a Runner.
func New(programs host.Runner) *Formatter { return &Formatter{programs} }

// Request says what EnsureFormatted may do.
type Request struct {
	// Volume is the id of the volume that the device is.
	Volume string
	// Filesystem is what the caller expects on the device, or wants to be made.
	Filesystem mounter.Filesystem
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
	// Begin, if set, is called before anything is written to the device. It records, off the device, that a format begins.
	Begin func(ctx context.Context) error
	// Begun says what such a record of an earlier call is worth.
	Begun Begun
	// Encrypt makes the header on the disk where Filesystem is LUKS.
	Encrypt func(ctx context.Context, disk *os.File) error
	// Note is set where a note off the device says whether its format has ended.
	Note Note
}

// Begun is what is on record about a format of the volume that has begun and is not known to have ended.
type Begun int

// The records.
const (
	// NotBegun: nothing is on record.
	NotBegun Begun = iota
	// BegunOnDevice: the format of this very device, which has not left this machine since, and of which nothing was
	// mounted or handed out since. What is on it and has no signature is what the mkfs left.
	BegunOnDevice
	// BegunBefore: a format of the volume, but of another disk, filesystem, boot or attachment. It allows nothing.
	BegunBefore
)

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
	// BegunOnDevice or FormatNonZero.
	Written
)

// EnsureFormatted returns the filesystem that is on the device, and makes it first if the gate allows
// it: mkfs runs only on a device that was read without an error, on which blkid and our own read find
// nothing, that opens exclusively, and that is still proven to be the volume's. A device with anything
// else on it is fault.Precondition, one that is in use fault.Busy: a volume that is mounted in this
// mount namespace needs no format, and mounting a disk that another namespace has mounted would give a
// pod the files of the machine itself.
//
// A mkfs does not end with ctx. One that was killed is repeated where it is on record as begun on this device and left no
// signature. Where it left one nothing tells it from a filesystem that is whole and in use: that is fault.FormatUnfinished.
func (f *Formatter) EnsureFormatted(ctx context.Context, dev mounter.BlockDevice, req Request) (mounter.Filesystem, error) {
	if req.Filesystem != mounter.LUKS {
		if err := ValidateMkfsOptions(req.Filesystem, req.MkfsOptions); err != nil {
			return "", err
		}
	}
	fs, err := f.ensureFormatted(ctx, dev, req)
	if err != nil {
		return "", fmt.Errorf("format volume %s on %s: %w", req.Volume, dev.Path(), err)
	}
	return fs, nil
}

func (f *Formatter) ensureFormatted(ctx context.Context, dev mounter.BlockDevice, req Request) (mounter.Filesystem, error) {
	size, err := checkedSize(dev, req.Size)
	if err != nil {
		return "", err
	}
	x, err := host.OpenExclusive(ctx, dev.File())
	if errors.Is(err, host.ErrInUse) {
		return "", fmt.Errorf("%w: it is mounted, perhaps in another mount namespace (unmount it there), or a command of an earlier run still works on it", err)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = x.Close() }() // closed earlier when mkfs takes over
	usable, err := f.decide(ctx, x, size, req)
	if err != nil {
		return "", err
	}
	if usable {
		return req.Filesystem, nil
	}
	work, err := f.prepare(ctx, dev, x, size, req)
	if err != nil {
		return "", err
	}
	return req.Filesystem, work.run(context.WithoutCancel(ctx))
}

// decide reports whether the device has what is asked for; if not, and without an error, mkfs may run.
func (f *Formatter) decide(ctx context.Context, x host.Exclusive, size int64, req Request) (usable bool, err error) {
	id, err := f.blkid(ctx, x.File)
	if err != nil {
		return false, err
	}
	super, err := primary(x)
	if err != nil {
		return false, err
	}
	if req.Note != NoNote {
		return decideNoted(id, req)
	}
	if usable, err = found(id, super, req); usable || err != nil {
		return usable, err
	}
	return false, gate(ctx, x, size, req)
}

// found judges a device by what blkid and the primary superblocks say. It is neither usable nor an error where both say
// that nothing is there.
func found(id identity, super mounter.Filesystem, req Request) (usable bool, err error) {
	switch {
	case req.Begun == BegunOnDevice && id.is(req.Filesystem):
		return false, unfinished(req, "and found on it is "+id.String())
	case id.is(req.Filesystem) && super == req.Filesystem && id.filesystem == string(super):
		return true, nil
	case !id.nothing() && id != (identity{filesystem: string(req.Filesystem)}):
		return false, fmt.Errorf("%w: found on it: %s, not %s; it is left as it is", fault.FormatContent, id, req.Filesystem)
	case id.nothing() && (super == "" || req.Begun == BegunOnDevice && super == req.Filesystem):
		return false, nil
	}
	advice := "fsck"
	if super == mounter.LUKS || id.filesystem == string(mounter.LUKS) {
		advice = "cryptsetup repair"
	}
	return false, fmt.Errorf("%w: blkid finds %s and the superblocks say %q; it may be damaged and is left as it is (check it with %s)",
		fault.FormatDamaged, id, super, advice)
}

// unfinished refuses a device on which a format was cut off.
func unfinished(req Request, why string) error {
	return fmt.Errorf("%w: a format of the volume as %s began and did not end, %s; this node has mounted nothing of it since: "+
		"if nobody else has used the volume, delete its claim and make a new one", fault.FormatUnfinished, req.Filesystem, why)
}

// decideNoted is decide for a device whose note stands elsewhere. Behind encryption a blank disk reads as random bytes,
// so zeros prove nothing: blkid decides.
func decideNoted(id identity, req Request) (usable bool, err error) {
	switch {
	case req.Note == Formatted && id == identity{filesystem: string(req.Filesystem)}:
		return true, nil
	case req.Note == Formatted:
		return false, fmt.Errorf("%w: nothing says that it was never formatted, and found on it is %s, not %s; it is left as it is",
			fault.FormatContent, id, req.Filesystem)
	case id.is(req.Filesystem):
		return false, unfinished(req, "and found behind its header is "+id.String())
	case !id.nothing():
		return false, fmt.Errorf("%w: it was never formatted, and yet found on it is %s; it is left as it is", fault.FormatContent, id)
	case req.Forbidden:
		return false, fmt.Errorf("%w: there is no %s on it, and a read-only volume, or one whose attributes forbid it, is never formatted",
			fault.FormatForbidden, req.Filesystem)
	}
	return false, nil
}

// minEncrypted is the smallest device that is encrypted: the header takes the first 16 MiB of it.
const minEncrypted = 64 * mib

// gate decides whether mkfs may run; nil means that it may.
func gate(ctx context.Context, x host.Exclusive, size int64, req Request) error {
	switch {
	case req.Filesystem == mounter.LUKS && size < minEncrypted:
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
	return blank(req, nonZero)
}

// blank allows mkfs on a device that was never written, or where that cannot be proven, on one that
// reads as zeros wherever it was probed, and again on one on which it is on record as begun.
func blank(req Request, nonZero int64) error {
	switch {
	case req.FormatNonZero && req.BlankCreated, req.Begun == BegunOnDevice:
	case (nonZero >= 0 || req.History == Written) && req.Begun == BegunBefore:
		return unfinished(req, "and the disk or this machine has gone and come back since")
	case nonZero >= 0:
		return fmt.Errorf("%w: blkid finds nothing on it, but it is not blank (first data at offset %d)%s",
			fault.FormatNotBlank, nonZero, nonZeroAdvice(req))
	case req.History == Written:
		return fmt.Errorf("%w: blkid finds nothing on it, but it was written to, so it may hold data%s", fault.FormatNotBlank, nonZeroAdvice(req))
	}
	return nil
}

// nonZeroAdvice names the way out for a volume that formatNonZero applies to.
func nonZeroAdvice(req Request) string {
	switch {
	case !req.BlankCreated:
		return ""
	case req.History == HistoryUnknown:
		return "; if the cloud's fresh disks do not read as zeros, set formatNonZero in the class"
	}
	return "; if nothing on it is needed, create a new volume"
}

// is says whether blkid found only fs. To blkid an unfinished ext4 may be ext2 or ext3.
func (i identity) is(fs mounter.Filesystem) bool {
	if i.partitions != "" {
		return false
	}
	return i.filesystem == string(fs) || fs == mounter.Ext4 && strings.HasPrefix(i.filesystem, "ext")
}

// checkedSize reads the size from the descriptor and compares it with the promise.
func checkedSize(dev mounter.BlockDevice, promised int64) (int64, error) {
	size, err := dev.Size()
	if err != nil {
		return 0, err
	}
	if size < promised {
		return 0, fmt.Errorf("%w: it has %d bytes but %d were promised", fault.DeviceTooSmall, size, promised)
	}
	return size, nil
}
