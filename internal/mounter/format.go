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
	// Filesystem is what the caller wants to find or to have made.
	Filesystem Filesystem
	// MkfsOptions are appended to our own.
	MkfsOptions []string
	// Size is how many bytes were promised; 0 when it is not known.
	Size int64
	// ReadOnly devices are never formatted.
	ReadOnly bool
	// HasContent is set for a volume made from a snapshot or another volume: never formatted.
	HasContent bool
	// BlankCreated is set when this driver created the volume blank.
	BlankCreated bool
	// FormatNonZero lets a BlankCreated volume that does not read as zeros be formatted, as long
	// as nothing on it is recognised.
	FormatNonZero bool
	// Prezeroed is set when whoever made the device guarantees that it reads as zeros.
	Prezeroed bool
}

// EnsureFormatted returns the filesystem that is on the device, and makes it first if the gate
// lets it: mkfs runs only on a device that was read without an error, in which blkid and our own
// read see nothing, that nobody else has open, and that is still proven to be the volume's. A
// device with anything else on it is fault.Precondition.
//
// A mkfs does not end with ctx. A call after one whose program was killed finds the filesystem, or the
// marker of a mkfs that did not finish, and goes on from there.
func (m *Mounter) EnsureFormatted(ctx context.Context, dev BlockDevice, req FormatRequest) (Filesystem, error) {
	if err := ValidateMkfsOptions(req.Filesystem, req.MkfsOptions); err != nil {
		return "", err
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
		return m.inUse(ctx, dev, req, size)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = x.Close() }() // closed earlier when mkfs takes over
	seen, err := m.look(ctx, x.File, size, req)
	if err != nil {
		return "", err
	}
	if seen.usable {
		return req.Filesystem, nil
	}
	retry, err := m.gate(ctx, x, size, req, seen)
	if err != nil {
		return "", err
	}
	work, err := m.prepare(ctx, dev, x, size, req)
	if err != nil {
		return "", err
	}
	work.retry = retry
	return req.Filesystem, work.run(context.WithoutCancel(ctx))
}

// sight is what a first look at a device shows.
type sight struct {
	usable  bool     // it carries the filesystem that is wanted and no marker
	blkid   identity // what blkid says
	primary Filesystem
	marker  *marker
}

// look reads what decides about a device in the usual case: blkid, the primary superblocks and the
// marker. It refuses when blkid and our own read do not agree.
func (m *Mounter) look(ctx context.Context, f *os.File, size int64, req FormatRequest) (sight, error) {
	var s sight
	var err error
	if s.primary, err = primary(f, size); err != nil {
		return s, err
	}
	if s.blkid, err = m.blkid(ctx, f); err != nil {
		return s, err
	}
	// ext4 remembers that it was mounted. Then no marker counts, whatever the files inside hold.
	if s.primary == Ext4 {
		sb, err := readExtSuper(f)
		if err != nil {
			return s, err
		}
		if sb.mounted() {
			s.usable = s.blkid == identity{filesystem: string(req.Filesystem)}
			return s, s.otherThan(req)
		}
	}
	switch k, err := readMarker(f, size); {
	case errors.Is(err, errNoMarker):
		s.usable = s.primary == req.Filesystem && s.blkid == identity{filesystem: string(req.Filesystem)}
		return s, s.otherThan(req)
	case err != nil:
		return s, err
	default:
		s.marker = &k
		return s, nil
	}
}

// otherThan refuses a device on which blkid or our own read sees something that is not the wanted
// filesystem, or on which they do not see the same.
func (s sight) otherThan(req FormatRequest) error {
	switch {
	case s.usable || s.blkid.nothing() && s.primary == "":
		return nil
	case !s.blkid.nothing() && s.blkid.filesystem != string(req.Filesystem) || s.blkid.partitions != "":
		return fmt.Errorf("%w: found on it: %s, not %s; it is left as it is", fault.Precondition, s.blkid, req.Filesystem)
	}
	return fmt.Errorf("%w: blkid sees %s and the superblocks say %q; it may be damaged and is left as it is (check it with fsck)",
		fault.Precondition, s.blkid, s.primary)
}

// inUse answers for a device that somebody holds exclusively: usually it is mounted already, and
// then it has a filesystem.
func (m *Mounter) inUse(ctx context.Context, dev BlockDevice, req FormatRequest, size int64) (Filesystem, error) {
	seen, err := m.look(ctx, dev.File(), size, req)
	switch {
	case err != nil:
		return "", err
	case seen.usable:
		return req.Filesystem, nil
	}
	return "", fmt.Errorf("%w: %w and holds no finished %s; a command left by an earlier run may still work on it",
		fault.Busy, errInUse, req.Filesystem)
}

// gate decides whether mkfs may run; nil means that it may. retry says that a mkfs for this volume
// was here before.
func (m *Mounter) gate(ctx context.Context, x exclusive, size int64, req FormatRequest, seen sight) (retry bool, err error) {
	switch {
	case req.ReadOnly:
		return false, fmt.Errorf("%w: there is no %s on it and a read-only volume is never formatted", fault.Precondition, req.Filesystem)
	case req.HasContent:
		return false, fmt.Errorf("%w: there is no %s on it, and a volume made from a snapshot or another volume, or one that forbids it itself, is never formatted",
			fault.Precondition, req.Filesystem)
	}
	found, err := probe(ctx, x, size)
	if err != nil {
		return false, err
	}
	if seen.marker != nil {
		return true, resumable(req, size, seen, found)
	}
	return false, blank(req, found)
}

// resumable allows mkfs again on a device that a killed mkfs of this volume left behind.
func resumable(req FormatRequest, size int64, seen sight, found findings) error {
	k := *seen.marker
	other, foreign := found.foreign(k.filesystem)
	switch {
	case k.volume != req.Volume:
		return fmt.Errorf("%w: it holds an unfinished format of another volume, %s", fault.Precondition, k.volume)
	case k.filesystem != req.Filesystem:
		return fmt.Errorf("%w: it holds an unfinished format as %s, not %s", fault.Precondition, k.filesystem, req.Filesystem)
	case k.size > size:
		return fmt.Errorf("%w: it had %d bytes when its format began and has %d now", fault.Precondition, k.size, size)
	case foreign:
		return fmt.Errorf("%w: beside an unfinished format found on it: %s", fault.Precondition, other.what)
	case !seen.blkid.nothing() && !seen.blkid.is(k.filesystem):
		return fmt.Errorf("%w: beside an unfinished format found on it: %s", fault.Precondition, seen.blkid)
	}
	return nil
}

// blank allows mkfs on a device that reads as zeros everywhere we look.
func blank(req FormatRequest, found findings) error {
	if len(found.signatures) > 0 {
		return fmt.Errorf("%w: found on it: %s; it is left as it is", fault.Precondition, found.signatures[0].what)
	}
	if found.blank() || req.FormatNonZero && req.BlankCreated {
		return nil
	}
	advice := ""
	if req.BlankCreated {
		advice = "; if the cloud's fresh disks do not read as zeros, set formatNonZero in the class"
	}
	return fmt.Errorf("%w: nothing on it is recognised but it is not blank (first data seen at offset %d)%s",
		fault.Precondition, found.nonZero, advice)
}

// is says whether blkid saw only fs. A half-made ext4 may look like one of its ancestors.
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
		return 0, fmt.Errorf("%w: it has %d bytes but %d were promised", fault.Precondition, size, promised)
	}
	return size, nil
}
