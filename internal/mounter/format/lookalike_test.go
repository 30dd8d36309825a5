package format

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// F13: a file of a pod may lie where blkid looks for a CD: a volume with its own superblock is used (util-linux/util-linux#4031: an image
// of a CD on xfs). What else is ambiguous is refused.
func TestAFileThatLooksLikeACD(t *testing.T) {
	device := func(start string) *os.File {
		file, err := os.Create(filepath.Join(t.TempDir(), "device"+start))
		if err == nil {
			_, err = file.WriteAt([]byte(start), 0)
		}
		must(t, err)
		must(t, file.Truncate(probeBlock))
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	file := device("XFSB")
	printed := func(text string) host.Output { return host.Output{Stdout: []byte(text)} }
	several, raid, xfs, blank := host.Output{ExitCode: blkidAmbiguous}, printed("TYPE=drbd\n"), printed("TYPE=xfs\n"), host.Output{ExitCode: blkidNothing}
	made := Request{Volume: "v1", Filesystem: mounter.XFS}
	mapped, begun, other := made, made, made
	mapped.Note, begun.Begun, other.Filesystem = Formatted, BegunOnDevice, mounter.Ext4
	for name, tc := range map[string]struct {
		blkid askedFor
		req   Request
		used  bool
	}{
		"a CD":                                {askedFor{several, xfs}, made, true},
		"a CD behind encryption":              {askedFor{several, xfs}, mapped, true},
		"a CD, and a record of mkfs":          {askedFor{several, xfs}, begun, false},
		"a CD, and another filesystem wanted": {askedFor{several, xfs}, other, false},
		"a RAID":                              {askedFor{several, several}, made, false},
		"a RAID in front":                     {askedFor{raid, xfs}, made, false},
		"not the volume's":                    {askedFor{several, blank}, made, false},
		"another filesystem":                  {askedFor{several, printed("TYPE=ext4\n")}, made, false},
		"a partition table":                   {askedFor{several, printed("TYPE=xfs\nPTTYPE=dos\n")}, made, false},
		"a disk that cannot be read":          {askedFor{host.Output{ExitCode: blkidNothing, Stdout: []byte("?")}, xfs}, made, false},
	} {
		on, err := New(tc.blkid).decide(t.Context(), host.Exclusive{File: file}, probeBlock, tc.req)
		if (err == nil) != tc.used || tc.used && on != usable {
			t.Errorf("%s: decide = %v, %v, want it used: %v", name, on, err, tc.used)
		}
	}
	own := Request{Volume: "v1", Filesystem: mounter.XFS, BlankCreated: true, FormatNonZero: true}
	if on, err := New(askedFor{several, blank}).decide(t.Context(), host.Exclusive{File: device("nothing of xfs")}, probeBlock, own); err == nil {
		t.Errorf("a CD alone, where formatNonZero allows mkfs: decide = %v, want a refusal", on)
	}
	for want, blkid := range map[mounter.Filesystem]askedFor{mounter.XFS: {several, xfs}, "": {several, several}} {
		if fs, err := New(blkid).Identify(t.Context(), file); fs != want || (err == nil) != (want != "") {
			t.Errorf("Identify = %q, %v, want %q", fs, err, want)
		}
	}
}

// F16: random bytes, as which a blank disk reads behind encryption, have the short magics of some formats now and then
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
				if on, err := decideNoted(id, req); fault.Of(err) != fault.Precondition || strings.Contains(err.Error(), "delete its claim") != (name == "made") {
					t.Errorf("%s, %s %s = %v, %v, want a refusal", id, name, fs, on, err)
				}
			}
			if _, err := found(id, "", Request{Filesystem: fs, BlankCreated: true, FormatNonZero: true}); fault.ReasonOf(err) != fault.FormatContent {
				t.Errorf("%s without encryption = %v, want %v", id, err, fault.FormatContent)
			}
		}
	}
}
