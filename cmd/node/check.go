package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/check"
)

const checkUsage = `Usage: cloudblock-node check DEVICE-OR-IMAGE [flags]

Says whether the volume on an unmounted block device or in an image can be restored. It checks the filesystem (ext4 or xfs) without
repairing it, reads every file, and compares the files with a list of checksums if the volume has one. It writes nothing without
--replay. It takes root with the capabilities SYS_ADMIN, to mount, and DAC_READ_SEARCH.

Exit code: 0 intact, 1 damaged, 2 it could not be checked.

What a file holds is proven by a list of checksums only. Of an ext4 without metadata_csum, not every wrong bit in its metadata can be
found; mkfs.ext4 and mkfs.xfs set checksums of metadata by default.
`

// runCheck is the sub-command "check".
func runCheck(ctx context.Context, args []string, stdout io.Writer) error {
	var req check.Request
	var asJSON bool
	var taken time.Time
	var maxAge time.Duration
	fs := flag.NewFlagSet("cloudblock-node check", flag.ContinueOnError)
	fs.StringVar(&req.Checksums, "checksums", "", "the `file` with checksums as sha256sum writes it: a name in the volume, or an absolute path outside of it "+
		"(default: "+check.DefaultChecksums+" in the root of the volume, if it is there)")
	fs.BoolVar(&req.Replay, "replay", false, "replay the journal first, which a filesystem that was in use needs; it writes, so only on a copy that is thrown away")
	fs.Func("snapshot-time", "the `time` at which the snapshot was taken: nanoseconds since 1970, as a VolumeSnapshotContent has it", parseNanoseconds(&taken))
	fs.DurationVar(&maxAge, "max-age", 0, "check only what is at most this old by its --snapshot-time, such as 48h")
	fs.BoolVar(&asJSON, "json", false, "print the report as JSON")
	err := parseCheck(fs, &req, args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	switch {
	case err != nil:
	case maxAge < 0:
		err = errors.New("--max-age: below 0")
	case (maxAge != 0) == taken.IsZero():
		err = errors.New("--max-age and --snapshot-time: only together")
	}
	if err != nil {
		return fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	if age := time.Since(taken).Round(time.Minute); maxAge > 0 && age > maxAge {
		return fmt.Errorf("%w: its snapshot is %s old, and --max-age is %s: are snapshots still taken?", check.ErrUnchecked, age, maxAge)
	}
	report := check.Run(ctx, req)
	return errors.Join(report.Print(stdout, asJSON), report.Err())
}

// parseNanoseconds returns a flag's function that parses nanoseconds since 1970 into a variable.
func parseNanoseconds(to *time.Time) func(string) error {
	return func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return errors.New("not nanoseconds since 1970, such as 1767322845000000000")
		}
		*to = time.Unix(0, n)
		return nil
	}
}

// parseCheck accepts the device before and after the flags.
func parseCheck(fs *flag.FlagSet, req *check.Request, args []string, out io.Writer) error {
	fs.SetOutput(io.Discard)
	for len(args) > 0 {
		err := fs.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			_, err := fmt.Fprint(out, checkUsage+"\n")
			return errors.Join(err, driver.PrintFlags(fs, out), flag.ErrHelp)
		}
		if err != nil {
			return driver.Spelled(err)
		}
		if args = fs.Args(); len(args) > 0 {
			if req.Path != "" {
				return fmt.Errorf("argument %q: only one device or image is checked", args[0])
			}
			req.Path, args = args[0], args[1:]
		}
	}
	if req.Path == "" {
		return errors.New("no device or image is given")
	}
	return nil
}
