package format

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// zeros is a blank device of any size, with some data on it and perhaps a place that cannot be read.
type zeros struct {
	data map[int64]string
	bad  int64 // reads that touch this byte fail
}

func (z zeros) ReadAt(p []byte, at int64) (int, error) {
	if z.bad >= at && z.bad < at+int64(len(p)) {
		return 0, io.ErrUnexpectedEOF
	}
	clear(p)
	for where, data := range z.data {
		for i := range len(data) {
			if k := where + int64(i) - at; k >= 0 && k < int64(len(p)) {
				p[k] = data[i]
			}
		}
	}
	return len(p), nil
}

func TestProbeReadsEverySuperblockPlace(t *testing.T) {
	for _, size := range []int64{320 * mib, 10*gib + 12345*512, 300 * gib, 6 * tib} {
		for _, at := range slices.Concat(superblockPlaces(size), []int64{0, 1080, size - 512}) {
			if at >= size {
				continue
			}
			if got, err := probe(t.Context(), zeros{map[int64]string{at: "x"}, -1}, size); err != nil || got != at {
				t.Errorf("probe of %d bytes with a byte at %d = %d, %v", size, at, got, err)
			}
		}
		if got, err := probe(t.Context(), zeros{nil, -1}, size); err != nil || got >= 0 {
			t.Errorf("probe of %d zero bytes = %d, %v, want blank", size, got, err)
		}
	}
}

// TestSuperblockPlaces: the places between the ends, as the formats' descriptions have them, so that none is dropped unseen.
func TestSuperblockPlaces(t *testing.T) {
	const size = 300 * gib
	for what, at := range map[string]int64{
		"the second LUKS2 header": 4 * mib, "VMFS": 2 * mib, "a VMFS member": mib, "a mirror of btrfs": 64*mib + 64, "the last mirror of btrfs": 256*gib + 64,
		"ext4, 1 KiB blocks, group 1": 8193*kib + 56, "ext4, 4 KiB blocks, group 1": 128*mib + 56, "ext4, 4 KiB blocks, group 49": 49*128*mib + 56,
		"xfs, the second of 4 groups": size / 4, "xfs, the third of 32 groups": size / 32 * 2,
	} {
		if !slices.Contains(superblockPlaces(size), at) {
			t.Errorf("%s at %d is not read", what, at)
		}
	}
}

// TestProbeMeetsDataBehindAZeroedHeader: of an encrypted disk whose headers and key slots were overwritten with zeros the
// ciphertext is left, and it is data as long as a backup of the header may exist.
func TestProbeMeetsDataBehindAZeroedHeader(t *testing.T) {
	for _, size := range []int64{minEncrypted, 2 * gib, 10*gib + 512, 6 * tib} {
		data := map[int64]string{16*mib + kib: "superblock", 16*mib + 64*kib: "superblock"}
		for at, what := range data {
			found, err := probe(t.Context(), zeros{map[int64]string{at: what}, -1}, size)
			if err != nil || found < 0 {
				t.Errorf("probe of %d bytes with data at %d = %d, %v, want data seen", size, at, found, err)
			}
		}
	}
}

func TestProbeFailsWhereTheDeviceCannotBeRead(t *testing.T) {
	const size = 3 * gib
	for _, e := range ProbeExtents(size) {
		for _, bad := range []int64{e.From, e.To - 1} {
			if _, err := probe(t.Context(), zeros{nil, bad}, size); !errors.Is(err, fault.Precondition) {
				t.Errorf("probe with byte %d unreadable = %v, want %v", bad, err, fault.Precondition)
			}
			if got, err := probe(t.Context(), zeros{map[int64]string{bad: "x"}, -1}, size); err != nil || got != bad {
				t.Errorf("probe with data in byte %d = %d, %v", bad, got, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := probe(ctx, zeros{nil, -1}, size); err == nil {
		t.Error("probe with an ended context = nil, want an error")
	}
}

func TestProbeExtentsCoverBothEndsAndStayInside(t *testing.T) {
	for _, size := range []int64{512, 4096, 100 * kib, mib, 2*mib - 512, 5 * mib, gib + 512, 7 * tib} {
		last := int64(0)
		all := ProbeExtents(size)
		for _, e := range all {
			if e.From < last || e.To <= e.From || e.To > size {
				t.Errorf("ProbeExtents(%d) has %+v after %d", size, e, last)
			}
			last = e.To
		}
		if all[0].From != 0 || last != size {
			t.Errorf("ProbeExtents(%d) covers %d to %d, want all of both ends", size, all[0].From, last)
		}
	}
}

// TestNoLargeGapBetweenSamples: data that covers a hundredth of a disk in one piece is met wherever it is.
func TestNoLargeGapBetweenSamples(t *testing.T) {
	for _, size := range []int64{10 * gib, 300 * gib, 16 * tib} {
		last := int64(0)
		for _, e := range ProbeExtents(size) {
			if gap := e.From - last; gap > size/100 {
				t.Errorf("of %d bytes the probe reads none from %d to %d", size, last, e.From)
			}
			last = e.To
		}
	}
}

func TestPrimaryNamesOurFilesystems(t *testing.T) {
	tests := map[string]struct {
		data map[int64]string
		want mounter.Filesystem
	}{
		"nothing": {},
		"ext4":    {map[int64]string{1080: "\x53\xef"}, mounter.Ext4},
		"xfs":     {map[int64]string{0: "XFSB"}, mounter.XFS},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := primary(zeros{tc.data, -1}); got != tc.want || err != nil {
				t.Errorf("primary = %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestParseBlkid(t *testing.T) {
	tests := map[string]struct {
		out  string
		want identity
		bad  bool
	}{
		"a filesystem":               {out: "DEVNAME=/proc/self/fd/3\nUUID=1-2\nBLOCK_SIZE=4096\nTYPE=ext4\nUSAGE=filesystem\n", want: identity{filesystem: "ext4"}},
		"a partition table":          {out: "DEVNAME=x\nPTUUID=1\nPTTYPE=gpt\n", want: identity{partitions: "gpt"}},
		"both":                       {out: "TYPE=xfs\nPTTYPE=dos\n", want: identity{filesystem: "xfs", partitions: "dos"}},
		"a label that looks like it": {out: "LABEL=TYPE=swap\nTYPE=ext4\n", want: identity{filesystem: "ext4"}},
		"two types":                  {out: "TYPE=xfs\nTYPE=ext4\n", bad: true},
		"nothing said":               {out: "DEVNAME=x\n", bad: true},
		"an empty answer":            {bad: true},
		"an empty type":              {out: "TYPE=\n", bad: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseBlkid(tc.out)
			if got != tc.want || (err != nil) != tc.bad {
				t.Errorf("parseBlkid(%q) = %+v, %v, want %+v, refused: %v", tc.out, got, err, tc.want, tc.bad)
			}
		})
	}
}

func FuzzParseBlkid(f *testing.F) {
	f.Add("DEVNAME=x\nTYPE=ext4\nPTTYPE=dos\n")
	f.Add("TYPE=a\r\nTYPE=b")
	f.Fuzz(func(t *testing.T, out string) {
		id, err := parseBlkid(out)
		if (err == nil) == id.nothing() {
			t.Errorf("parseBlkid(%q) = %+v, %v: success must name something and failure nothing", out, id, err)
		}
		if err == nil && !strings.Contains(out, "TYPE=") {
			t.Errorf("parseBlkid(%q) invented %+v", out, id)
		}
	})
}

// scripted answers every command with the same output.
type scripted struct{ out host.Output }

func (s scripted) Run(context.Context, host.Command) (host.Output, error) { return s.out, nil }

func TestBlkidExitCodes(t *testing.T) {
	tests := map[string]struct {
		out  host.Output
		want identity
		bad  bool
	}{
		"0 names what it found":        {host.Output{Stdout: []byte("TYPE=xfs\n")}, identity{filesystem: "xfs"}, false},
		"0 without a name is refused":  {host.Output{}, identity{}, true},
		"2 is nothing":                 {host.Output{ExitCode: 2}, identity{}, false},
		"2 with words is refused":      {host.Output{ExitCode: 2, Stdout: []byte("TYPE=xfs\n")}, identity{}, true},
		"8 is ambiguous and refused":   {host.Output{ExitCode: 8}, identity{}, true},
		"4, a wrong usage, is refused": {host.Output{ExitCode: 4}, identity{}, true},
		"1 is refused":                 {host.Output{ExitCode: 1}, identity{}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := New(scripted{tc.out}).blkid(t.Context(), os.Stdin)
			if got != tc.want || errors.Is(err, fault.Precondition) != tc.bad {
				t.Errorf("blkid = %+v, %v, want %+v, refused: %v", got, err, tc.want, tc.bad)
			}
		})
	}
}

// F13: what is found on a device and what is on record about it decide together.
func TestGateRules(t *testing.T) {
	req := Request{Volume: "v1", Filesystem: mounter.Ext4}
	with := func(change func(r *Request)) Request {
		r := req
		change(&r)
		return r
	}
	here, before := with(func(r *Request) { r.Begun = BegunOnDevice }), with(func(r *Request) { r.Begun = BegunBefore })
	nonZero := with(func(r *Request) { r.FormatNonZero, r.BlankCreated = true, true })
	ext4, ext2, swap, both := identity{filesystem: "ext4"}, identity{filesystem: "ext2"}, identity{filesystem: "swap"}, identity{filesystem: "ext4", partitions: "dos"}
	half := identity{filesystem: "xfs", unfinished: true}
	judge := func(id identity, super mounter.Filesystem, r Request) error { return second(found(id, super, r)) }
	tests := map[string]struct {
		err  error
		want fault.Reason // none: it passes
		says string
	}{
		"zeros pass":                                            {blank(req, -1), "", ""},
		"a byte refuses":                                        {blank(req, 7), fault.FormatNotBlank, "offset 7"},
		"formatNonZero alone is not enough":                     {blank(with(func(r *Request) { r.FormatNonZero = true }), 7), fault.FormatNotBlank, ""},
		"formatNonZero on our own blank volume":                 {blank(nonZero, 7), "", ""},
		"formatNonZero and a signature":                         {judge(ext2, "", nonZero), fault.FormatContent, "ext2"},
		"formatNonZero and a superblock that blkid passes over": {judge(identity{}, mounter.Ext4, nonZero), fault.FormatDamaged, ""},

		"zeros that were never written": {blank(with(func(r *Request) { r.History = NeverWritten }), -1), "", ""},
		"zeros that were written":       {blank(with(func(r *Request) { r.History, r.BlankCreated = Written, true }), -1), fault.FormatNotBlank, "written to"},
		"formatNonZero on one that was written": {blank(with(func(r *Request) {
			r.History, r.FormatNonZero, r.BlankCreated = Written, true, true
		}), -1), "", ""},

		"the filesystem": {judge(ext4, mounter.Ext4, req), "", ""},
		"the filesystem, and a record of another disk":                  {judge(ext4, mounter.Ext4, before), "", ""},
		"the filesystem, and a record of the device":                    {judge(ext4, mounter.Ext4, here), "", ""},
		"half of it, and a record of the device":                        {judge(ext2, mounter.Ext4, here), fault.FormatUnfinished, "delete its claim only if no pod has ever used"},
		"a superblock without its checksum, and a record of the device": {judge(identity{}, mounter.Ext4, here), "", ""},
		"another's superblock, and a record of the device":              {judge(identity{}, mounter.XFS, here), fault.FormatDamaged, ""},
		"another format, and a record of the device":                    {judge(swap, "", here), fault.FormatContent, "swap"},
		"an unfinished xfs where ext4 is wanted, and a record":          {judge(half, mounter.XFS, here), fault.FormatContent, "unfinished xfs"},
		"the filesystem, a partition table, and a record":               {judge(both, mounter.Ext4, here), fault.FormatContent, "dos"},
		"no signature, and a record of the device":                      {errors.Join(judge(identity{}, "", here), blank(here, 7)), "", ""},
		"no signature, and a record of another disk":                    {errors.Join(judge(identity{}, "", before), blank(before, 7)), fault.FormatUnfinished, "another node"},
		"zeros, and a record of another disk":                           {blank(before, -1), "", ""},
		"written zeros, and a record of another disk":                   {blank(with(func(r *Request) { r.Begun, r.History = BegunBefore, Written }), -1), fault.FormatUnfinished, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if fault.ReasonOf(tc.err) != tc.want || (tc.err == nil) != (tc.want == "") || tc.err != nil && !strings.Contains(tc.err.Error(), tc.says) {
				t.Errorf("got %v, want %q, saying %q", tc.err, tc.want, tc.says)
			}
		})
	}
}

// F15: with a record of the device, or a note behind encryption, a filesystem is checked before it is used, and an xfs that says that
// its mkfs has not ended is made again.
func TestWhatAKilledMkfsLeft(t *testing.T) {
	whole, half := identity{filesystem: "xfs"}, identity{filesystem: "xfs", unfinished: true}
	recorded, noted := Request{Filesystem: mounter.XFS, Begun: BegunOnDevice}, Request{Filesystem: mounter.XFS, Note: Unformatted}
	judge := func(id identity, r Request) (content, error) {
		if r.Note != NoNote {
			return decideNoted(id, r)
		}
		return found(id, mounter.XFS, r)
	}
	for name, tc := range map[string]struct {
		id   identity
		req  Request
		want content
	}{
		"whole, no record":      {whole, Request{Filesystem: mounter.XFS}, usable},
		"whole, a record":       {whole, recorded, leftBehind},
		"unfinished, a record":  {half, recorded, nothing},
		"whole, a note":         {whole, noted, leftBehind},
		"unfinished, a note":    {half, noted, nothing},
		"whole, after its note": {whole, Request{Filesystem: mounter.XFS, Note: Formatted}, usable},
	} {
		if got, err := judge(tc.id, tc.req); err != nil || got != tc.want {
			t.Errorf("%s = %v, %v, want %v", name, got, err, tc.want)
		}
	}
	for name, req := range map[string]Request{
		"no record":                {Filesystem: mounter.XFS},
		"a record of another disk": {Filesystem: mounter.XFS, Begun: BegunBefore},
		"after its note":           {Filesystem: mounter.XFS, Note: Formatted},
	} {
		if got, err := judge(half, req); fault.Of(err) != fault.Precondition {
			t.Errorf("unfinished, %s = %v, %v, want %v", name, got, err, fault.Precondition)
		}
	}
}
