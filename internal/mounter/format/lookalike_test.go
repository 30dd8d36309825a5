package format

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// askedFor answers blkid: with the option -n, what that leaves, and else the other output.
type askedFor struct{ all, only host.Output }

func (a askedFor) Run(_ context.Context, cmd host.Command) (host.Output, error) {
	if slices.Contains(cmd.Args, "-n") {
		return a.only, nil
	}
	return a.all, nil
}

// F13: a file of a pod may lie where blkid looks for another format: a volume of this driver with its own superblock is used
// (util-linux/util-linux#4031: an image of a CD on xfs).
func TestAFileThatLooksLikeAnotherFormat(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "device"))
	if err == nil {
		_, err = file.WriteAt([]byte("XFSB"), 0)
	}
	if err == nil {
		err = file.Truncate(probeBlock)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	printed := func(text string) host.Output { return host.Output{Stdout: []byte(text)} }
	ambiguous, raid, xfs, blank := host.Output{ExitCode: blkidAmbiguous}, printed("TYPE=drbd\n"), printed("TYPE=xfs\n"), host.Output{ExitCode: blkidNothing}
	made := Request{Volume: "v1", Filesystem: mounter.XFS, Created: true}
	inMapping, foreign, other, begun := made, made, made, made
	inMapping.Note, foreign.Created, other.Filesystem, begun.Begun = Formatted, false, mounter.Ext4, BegunOnDevice
	for name, tc := range map[string]struct {
		blkid askedFor
		req   Request
		used  bool
	}{
		"several formats":                         {askedFor{ambiguous, xfs}, made, true},
		"a format in front":                       {askedFor{raid, xfs}, made, true},
		"several formats behind encryption":       {askedFor{ambiguous, xfs}, inMapping, true},
		"several formats, and not the volume's":   {askedFor{ambiguous, blank}, made, false},
		"the volume's, and a partition table":     {askedFor{ambiguous, printed("TYPE=xfs\nPTTYPE=dos\n")}, made, false},
		"several formats of an existing volume":   {askedFor{ambiguous, xfs}, foreign, false},
		"a format in front of an existing volume": {askedFor{raid, xfs}, foreign, false},
		"several formats of another filesystem":   {askedFor{ambiguous, xfs}, other, false},
		"several formats, and a record of mkfs":   {askedFor{ambiguous, xfs}, begun, false},
	} {
		on, err := New(tc.blkid).decide(t.Context(), host.Exclusive{File: file}, probeBlock, tc.req)
		if (err == nil && on == usable) != tc.used || err != nil && fault.Of(err) != fault.Precondition || on == nothing && err == nil {
			t.Errorf("%s: decide = %v, %v, want it used: %v", name, on, err, tc.used)
		}
	}
	for name, tc := range map[string]struct {
		blkid askedFor
		fs    mounter.Filesystem
	}{
		"several formats": {askedFor{ambiguous, xfs}, mounter.XFS}, "another's too": {askedFor{ambiguous, blank}, ""}, "one alone": {askedFor{raid, blank}, ""},
	} {
		if fs, err := New(tc.blkid).Identify(t.Context(), file); fs != tc.fs || (err == nil) != (tc.fs != "") {
			t.Errorf("%s: Identify = %q, %v, want %q", name, fs, err, tc.fs)
		}
	}
}

// Random bytes, as which a blank disk reads behind encryption, have the short magics of some formats now and then
// (bottlerocket-os/bottlerocket#4855, util-linux/util-linux#2692, util-linux/util-linux#3665).
func TestRandomBytesThatLookLikeAFormat(t *testing.T) {
	for _, id := range []identity{{partitions: "atari"}, {filesystem: "hfsplus"}, {filesystem: "jbd"}} {
		for _, fs := range []mounter.Filesystem{mounter.Ext4, mounter.XFS} {
			if on, err := decideNoted(id, Request{Filesystem: fs, Note: Unformatted}); err != nil || on != nothing {
				t.Errorf("%s where %s was never made = %v, %v, want mkfs", id, fs, on, err)
			}
			for name, req := range map[string]Request{
				"made": {Filesystem: fs, Note: Formatted}, "read-only": {Filesystem: fs, Note: Unformatted, Forbidden: true},
			} {
				if on, err := decideNoted(id, req); fault.Of(err) != fault.Precondition {
					t.Errorf("%s, %s %s = %v, %v, want a refusal", id, name, fs, on, err)
				}
			}
			if _, err := found(id, "", Request{Filesystem: fs, BlankCreated: true, FormatNonZero: true}); fault.ReasonOf(err) != fault.FormatContent {
				t.Errorf("%s without encryption = %v, want %v", id, err, fault.FormatContent)
			}
		}
	}
}
