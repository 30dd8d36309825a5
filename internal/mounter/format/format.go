// Package format decides whether a device may be formatted, and makes filesystems and checks them.
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

// Formatter makes and checks filesystems. It is safe for concurrent use with different devices.
type Formatter struct{ programs host.Runner }

// New returns a Formatter that runs programs by a Runner.
func New(programs host.Runner) *Formatter { return &Formatter{programs} }

// Request is what EnsureFormatted makes and under which conditions.
type Request struct {
	// Volume is the volume's id.
	Volume string
	// Filesystem is what the device must have, and what is made on a blank one.
	Filesystem mounter.Filesystem
	// MkfsOptions are appended to the driver's own.
	MkfsOptions []string
	// Size is the minimum size in bytes; 0 when it is not known.
	Size int64
	// Forbidden: the device is never formatted, because the use is read-only or the volume's attributes forbid it.
	Forbidden bool
	// HasContent is set for a volume made from a snapshot or another volume, and for one that this driver did not create. It is
	// formatted only where History proves that it is blank.
	HasContent bool
	// BlankCreated is set when this driver created the volume blank.
	BlankCreated bool
	// FormatNonZero allows a BlankCreated volume that does not read as zeros to be formatted, if blkid finds nothing on it.
	FormatNonZero bool
	// History is what is known about earlier writes to the device. The caller reads it before EnsureFormatted opens the device:
	// NeverWritten may become Written later, but never the reverse.
	History History
	// Begin, if set, is called before the first write to the device. It records elsewhere that a format begins.
	Begin func(ctx context.Context) error
	// Begun is what such a record of an earlier call proves.
	Begun Begun
	// Encrypt makes the header on the disk where Filesystem is LUKS.
	Encrypt func(ctx context.Context, disk *os.File) error
	// Note is set if a note that is not on the device tells whether its format is complete.
	Note Note
}

// Begun is what is recorded of a format of the volume that has begun and may not have ended.
type Begun int

// The records.
const (
	// NotBegun: there is no record.
	NotBegun Begun = iota
	// BegunOnDevice: a format of this device, which has stayed on this machine and was not mounted or published since. What it
	// holds, if there is no signature, is from the interrupted mkfs.
	BegunOnDevice
	// BegunBefore: a format of the volume, but of another disk or filesystem, or in another boot or attachment. It allows nothing.
	BegunBefore
)

// Note is what a note that is not on the device, such as the token in the LUKS header below it, tells about its format.
type Note int

// The notes.
const (
	// NoNote: the device itself decides.
	NoNote Note = iota
	// Unformatted: no format was completed, so the device holds no data, even if it does not read as zeros.
	Unformatted
	// Formatted: a format was completed, or this driver must not format the device.
	Formatted
)

// History tells whether a device was ever written.
type History int

// The histories.
const (
	// HistoryUnknown: a cloud's disk. It counts as blank if the parts that are read are zeros.
	HistoryUnknown History = iota
	// NeverWritten: no byte was ever written, so all of them read as zeros.
	NeverWritten
	// Written: the device was written, or NeverWritten could not be proven. Even if the device reads as zeros, mkfs needs
	// BegunOnDevice or FormatNonZero.
	Written
)

// EnsureFormatted returns the filesystem on the device, and makes it first if the gate allows that: mkfs runs only on a device
// that was read without an error, on which blkid and the gate's own read find nothing, that opens exclusively, and whose identity
// is proven again. A device with anything else on it is fault.Precondition. One that is in use is fault.Busy: a volume that is
// mounted in this mount namespace needs no format, and a disk that is mounted in another may be the machine's own.
//
// A mkfs does not end with ctx. A mkfs that was killed is repeated if a record proves that it began on this device and it left no
// signature, or an xfs that says itself that its mkfs did not end. Another filesystem on it may have data, and is used if its check
// finds it complete; else that is fault.FormatUnfinished.
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
	on, err := f.decide(ctx, x, size, req)
	switch {
	case err != nil:
		return "", err
	case on == leftBehind:
		_ = x.Close() // else e2fsck warns that it is in use
		return req.Filesystem, f.checkComplete(ctx, dev, req)
	case on == usable:
		return req.Filesystem, nil
	}
	work, err := f.prepare(ctx, dev, x, size, req)
	if err != nil {
		return "", err
	}
	return req.Filesystem, work.run(context.WithoutCancel(ctx))
}

// content is what a device has on it.
type content int

const (
	nothing    content = iota // mkfs may run
	usable                    // the requested filesystem
	leftBehind                // what a killed mkfs has left, or the requested filesystem
)

// decide returns what is on the device, or an error if it is neither to be formatted nor to be used.
func (f *Formatter) decide(ctx context.Context, x host.Exclusive, size int64, req Request) (content, error) {
	super, err := primary(x)
	if err != nil {
		return nothing, err
	}
	id, err := f.identify(ctx, x.File, super, req.Begun)
	if err != nil {
		return nothing, err
	}
	if id == (identity{filesystem: string(mounter.XFS)}) {
		if id.unfinished, err = inProgress(x); err != nil {
			return nothing, err
		}
	}
	if req.Note != NoNote {
		return decideNoted(id, req)
	}
	if on, err := found(id, super, req); on != nothing || err != nil {
		return on, err
	}
	return nothing, gate(ctx, x, size, req)
}

// found judges a device by blkid and the primary superblocks. If both find nothing, it returns nothing without an error.
func found(id identity, super mounter.Filesystem, req Request) (content, error) {
	switch {
	case req.Begun == BegunOnDevice && id.unfinished && id.is(req.Filesystem):
		return nothing, nil
	case req.Begun == BegunOnDevice && id == identity{filesystem: string(req.Filesystem)} && req.Filesystem != mounter.LUKS:
		return leftBehind, nil
	case (req.Begun == BegunOnDevice || id.unfinished) && id.is(req.Filesystem):
		return nothing, unfinished(req, "and found on it is "+id.String())
	case id.is(req.Filesystem) && super == req.Filesystem && id.filesystem == string(super):
		return usable, nil
	case !id.nothing() && id != (identity{filesystem: string(req.Filesystem)}):
		return nothing, fmt.Errorf("%w: found on it: %s, not %s; it is left as it is", fault.FormatContent, id, req.Filesystem)
	case id.nothing() && (super == "" || req.Begun == BegunOnDevice && super == req.Filesystem):
		return nothing, nil
	}
	advice := "fsck"
	if super == mounter.LUKS || id.filesystem == string(mounter.LUKS) {
		advice = "cryptsetup repair"
	}
	return nothing, fmt.Errorf("%w: blkid finds %s and the superblocks say %q; it may be damaged and is left as it is (check it with %s)",
		fault.FormatDamaged, id, super, advice)
}

// unfinished refuses a device on which a format was interrupted.
func unfinished(req Request, why string) error {
	return fmt.Errorf("%w: a format of the volume as %s began and did not end, %s; this node has mounted nothing of it since, "+
		"but another node or another driver may have: delete its claim only if no pod has ever used the volume", fault.FormatUnfinished, req.Filesystem, why)
}

// lookalikes are what blkid finds in random bytes now and then, the first in one of 1,700 encrypted disks of nearly 1 TiB
// (bottlerocket-os/bottlerocket#4855, util-linux/util-linux#2692, util-linux/util-linux#3665).
var lookalikes = []identity{{partitions: "atari"}, {filesystem: "hfsplus"}, {filesystem: "jbd"}}

// decideNoted is decide for a device with a Note. Through encryption a blank disk reads as random bytes, so blkid alone
// decides.
func decideNoted(id identity, req Request) (content, error) {
	switch {
	case req.Note == Formatted && id == identity{filesystem: string(req.Filesystem)}:
		return usable, nil
	case req.Note == Formatted:
		return nothing, fmt.Errorf("%w: nothing says that it was never formatted, and found on it is %s, not %s; it is left as it is "+
			"(if no pod has ever used the volume, delete its claim)", fault.FormatContent, id, req.Filesystem)
	case id == identity{filesystem: string(req.Filesystem)}:
		return leftBehind, nil
	case id.is(req.Filesystem) && !id.unfinished:
		return nothing, unfinished(req, "and found behind its header is "+id.String())
	case !id.nothing() && !id.is(req.Filesystem) && !slices.Contains(lookalikes, id):
		return nothing, fmt.Errorf("%w: it was never formatted, and yet found on it is %s; it is left as it is", fault.FormatContent, id)
	case req.Forbidden:
		return nothing, fmt.Errorf("%w: there is no %s on it, and a read-only volume, or one whose attributes forbid it, is never formatted",
			fault.FormatForbidden, req.Filesystem)
	}
	return nothing, nil
}

// minEncrypted is the minimum size of an encrypted device: the header takes 16 MiB.
const minEncrypted = 64 * mib

// gate returns an error unless mkfs may run.
func gate(ctx context.Context, x host.Exclusive, size int64, req Request) error {
	switch {
	case req.Filesystem == mounter.LUKS && size < minEncrypted:
		return fmt.Errorf("%w: it has %d bytes, and an encrypted volume has at least %d", fault.DeviceTooSmall, size, minEncrypted)
	case req.Forbidden:
		return fmt.Errorf("%w: there is no %s on it, and a read-only volume, or one whose attributes forbid it, is never formatted",
			fault.FormatForbidden, req.Filesystem)
	case req.HasContent && req.History == HistoryUnknown:
		return fmt.Errorf("%w: there is no %s on it, and a volume made from a snapshot or another volume, or not created by this driver, is never formatted",
			fault.FormatForbidden, req.Filesystem)
	}
	for _, e := range ProbeExtents(size) { // one after the other, 170 reads of a disk in the network take 100 ms and more
		x.ReadAhead(e.From, e.To-e.From)
	}
	nonZero, err := probe(ctx, x, size)
	if err != nil {
		return err
	}
	return blank(req, nonZero)
}

// blank allows mkfs on a device that was never written; where that cannot be known, on a device that reads as zeros wherever it
// is probed; and on a device with the record of an interrupted format.
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

// nonZeroAdvice is the remedy for a volume to which formatNonZero applies.
func nonZeroAdvice(req Request) string {
	switch {
	case !req.BlankCreated:
		return ""
	case req.History == HistoryUnknown:
		return "; if the cloud's fresh disks do not read as zeros, set formatNonZero in the class"
	}
	return "; if nothing on it is needed, create a new volume"
}

// is reports whether blkid found fs and nothing else. blkid may call an unfinished ext4 ext2 or ext3.
func (i identity) is(fs mounter.Filesystem) bool {
	if i.partitions != "" {
		return false
	}
	return i.filesystem == string(fs) || fs == mounter.Ext4 && strings.HasPrefix(i.filesystem, "ext")
}

// checkedSize reads the size from the descriptor and refuses one below Request.Size.
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
