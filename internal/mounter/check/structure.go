package check

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// program is a program that checks a filesystem and repairs nothing.
type program struct {
	command host.Command
	// harmless are the lines that it prints about an intact filesystem. Every other line is a finding: the exit code of e2fsck -n is
	// 0 for some damage, such as a wrong number of free blocks in the superblock.
	harmless *regexp.Regexp
	// unclean is printed if the journal is not replayed.
	unclean string
	// failed is the lowest exit code with which the program has not checked anything.
	failed int
}

var programs = map[mounter.Filesystem]program{
	mounter.Ext4: {
		// Without no_optimize_extents it also says which trees of extents could be smaller.
		command: host.Command{Name: "e2fsck", Args: []string{"-n", "-f", "-E", "no_optimize_extents", host.ChildFile}},
		harmless: regexp.MustCompile(`^(e2fsck \d\S* \([0-9A-Za-z-]+\)` +
			`|Pass 1: Checking inodes, blocks, and sizes` +
			`|Pass 2: Checking directory structure` +
			`|Pass 3: Checking directory connectivity` +
			`|Pass 3A: Optimizing directories` +
			`|Pass 4: Checking reference counts` +
			`|Pass 5: Checking group summary information` +
			`|.*: \d+/\d+ files \(\d+\.\d% non-contiguous\), \d+/\d+ blocks` +
			// The clock of the machine that wrote it was ahead.
			`|Superblock last (mount|write) time is in the future\.` +
			`|\s*\(by less than a day, probably due to the hardware clock being incorrectly set\)` +
			`|Superblock last (mount|write) time \(.*,` +
			`|\s*now = .*\) is in the future\.` +
			`|Fix\? no)$`),
		unclean: "skipping journal recovery",
		failed:  16,
	},
	mounter.XFS: {
		command: host.Command{Name: "xfs_repair", Args: []string{"-n", host.ChildFile}},
		harmless: regexp.MustCompile(`^(Phase [1-7] - [A-Za-z ,]+(\.\.\.)?` +
			`| {8}- (zero log|scan filesystem freespace and inode maps|scan \(but don't clear\) agi unlinked lists)\.\.\.` +
			`| {8}- (found root inode chunk|agno = \d+|process known inodes and perform inode discovery\.\.\.)` +
			`| {8}- (process newly discovered inodes|setting up duplicate extent list)\.\.\.` +
			`| {8}- check for inodes claiming duplicate blocks\.\.\.` +
			`| {8}- (traversing filesystem|traversal finished|moving disconnected inodes to lost\+found) \.\.\.` +
			`| {8}- reporting progress in intervals of .*` +
			`| {8}- \d\d:\d\d:\d\d: .*` +
			`|No modify flag set, skipping (phase 5|filesystem flush and exiting\.))$`),
		unclean: "valuable metadata changes in a log",
		failed:  2,
	},
}

// inUse is the warning of e2fsck for a device that is mounted or open exclusively.
var inUse = regexp.MustCompile(`(?m)^Warning!  ` + host.ChildFile + ` is (mounted|in use)\.$`)

// checkStructure runs the program for the filesystem.
func (c *checker) checkStructure(ctx context.Context, fs mounter.Filesystem, dev *os.File) error {
	p := programs[fs]
	p.command.Files = []*os.File{dev}
	// Not host.RunAlone: of a damaged inode e2fsck says that it is in use.
	out, err := c.programs.Run(ctx, p.command)
	if err != nil {
		return err
	}
	c.report.Structure = p.command.Name + " " + strings.Join(p.command.Args[:len(p.command.Args)-1], " ")
	text := string(out.Stdout) + "\n" + string(out.Stderr)
	if strings.Contains(text, p.unclean) {
		switch {
		case len(c.report.Findings) > 0: // it cannot be replayed
		case !c.Replay:
			return errUnclean
		default:
			return fmt.Errorf("the journal is not empty after it was replayed: %w", fault.VolumeDamaged)
		}
	}
	if inUse.MatchString(text) {
		return fmt.Errorf("%s: another program has the device open: %w", p.command.Name, fault.DeviceInUse)
	}
	complaints := p.complaints(text)
	if out.ExitCode >= p.failed {
		return fmt.Errorf("%s ended with code %d: %w: %s", p.command.Name, out.ExitCode, fault.Unavailable, out.Tail())
	}
	for _, line := range complaints {
		c.report.finding("%s: %s", p.command.Name, strings.ReplaceAll(line, host.ChildFile, c.Path))
	}
	if out.ExitCode != 0 && len(complaints) == 0 {
		c.report.finding("%s ended with code %d", p.command.Name, out.ExitCode)
	}
	return nil
}

// complaints returns the lines of the output that an intact filesystem does not cause.
func (p program) complaints(output string) (lines []string) {
	for line := range strings.Lines(output) {
		if line = strings.TrimRight(line, " \r\n"); line != "" && !p.harmless.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}
