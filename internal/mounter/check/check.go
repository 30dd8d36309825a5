// Package check proves that a volume can be restored: it checks the filesystem of an unmounted device or image without repairing it,
// reads every file, and compares the files with a list of checksums.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
)

// DefaultChecksums is the list of checksums that is looked for without a name.
const DefaultChecksums = "SHA256SUMS"

// Request is what is checked, and how.
type Request struct {
	// Path is an unmounted block device or an image of a filesystem.
	Path string
	// Checksums names the list of checksums: a file of the volume, or an absolute path of this machine. Empty: DefaultChecksums, if
	// the volume has it.
	Checksums string
	// Replay allows the one write: the kernel replays the journal. Otherwise a device or image is opened for reading only.
	Replay bool
	// Programs runs programs; nil means those on PATH.
	Programs host.Runner
}

// checker is one run.
type checker struct {
	Request
	programs host.Runner
	report   *Report
}

// Run checks a device or an image. Whatever happens is in the report.
func Run(ctx context.Context, req Request) *Report {
	report := &Report{Device: req.Path, Findings: []string{}, Unchecked: []string{}}
	c := &checker{Request: req, programs: cmp.Or[host.Runner](req.Programs, host.Programs{}), report: report}
	if err := c.run(ctx); err != nil {
		report.judge(err)
	}
	report.conclude()
	return report
}

// run returns what ended the check early. A kind of damage is a finding; everything else means that it could not be checked.
func (c *checker) run(ctx context.Context) error {
	s, err := open(ctx, c.Path, c.Replay)
	if err != nil {
		return err
	}
	defer s.close()
	fs, err := format.New(c.programs).Identify(ctx, s.device)
	if err != nil {
		return err
	}
	c.report.Filesystem = string(fs)
	if c.Replay {
		switch err := replay(fs, s.device); {
		case isDamage(err): // the program says more about it
			c.report.judge(err)
		case err != nil:
			return err
		default:
			c.report.Replayed = true
		}
	} else if err := c.refuseUnclean(fs, s.device); err != nil {
		return err
	}
	if err := c.checkStructure(ctx, fs, s.device); err != nil {
		return err
	}
	if len(c.report.Findings) > 0 {
		// The kernel is spared what is known to be damaged.
		c.report.unchecked("the files were not read, because the filesystem is damaged")
		return nil
	}
	root, err := mountReadOnly(fs, s.device)
	if err != nil {
		return err
	}
	err = c.readFiles(ctx, root)
	return errors.Join(err, root.Close())
}

// refuseUnclean refuses an ext4 whose journal or list of orphans is still to be processed: e2fsck -n ignores both and complains about
// what they would mend. Of an xfs, xfs_repair itself says so.
func (c *checker) refuseUnclean(fs mounter.Filesystem, dev *os.File) error {
	if fs != mounter.Ext4 {
		return nil
	}
	unclean, err := isUnclean(dev)
	if err == nil && unclean {
		err = errUnclean
	}
	return err
}

// errUnclean is returned for a filesystem that was in use.
var errUnclean = fmt.Errorf("the filesystem was in use when the snapshot was taken, and its journal is not replayed: it can be judged with --replay, "+
	"on a copy that is thrown away: %w", fault.Precondition)

// isDamage reports whether an error is about what is on the device and not about the check.
func isDamage(err error) bool {
	for _, damage := range []error{fault.VolumeDamaged, fault.FormatDamaged, fault.DeviceUnreadable, fault.FsckFailed, fault.MountFailed} {
		if errors.Is(err, damage) {
			return true
		}
	}
	return false
}
