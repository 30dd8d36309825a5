package format

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// Each refusal of the gate has its reason, and is a fault.Precondition.
func TestRefusalsHaveTheirReasons(t *testing.T) {
	ext4 := Request{Volume: "v", Filesystem: mounter.Ext4}
	twice := zeros{data: map[int64]string{0: "XFSB", 1080: "\x53\xef"}, bad: -1}
	for name, tc := range map[string]struct {
		err  error
		want fault.Reason
	}{
		"another filesystem":          {second(found(identity{filesystem: "xfs"}, mounter.XFS, ext4)), fault.FormatContent},
		"partitions":                  {second(found(identity{partitions: "gpt"}, "", ext4)), fault.FormatContent},
		"only one superblock":         {second(found(identity{filesystem: "ext4"}, "", ext4)), fault.FormatDamaged},
		"data":                        {blank(ext4, 4096), fault.FormatNotBlank},
		"read-only":                   {gate(t.Context(), host.Exclusive{}, gib, Request{Forbidden: true}), fault.FormatForbidden},
		"a copy":                      {gate(t.Context(), host.Exclusive{}, gib, Request{HasContent: true}), fault.FormatForbidden},
		"too small to encrypt":        {gate(t.Context(), host.Exclusive{}, mib, Request{Filesystem: mounter.LUKS}), fault.DeviceTooSmall},
		"smaller than promised":       {second(checkedSize(sized{size: gib - 1}, gib)), fault.DeviceTooSmall},
		"a disk with two filesystems": {second(primary(twice)), fault.FormatDamaged},
		"a disk that gives errors":    {second(primary(zeros{bad: 1024})), fault.DeviceUnreadable},
		"a program that is missing":   {second(host.Programs{}.Run(t.Context(), host.Command{Name: "mkfs.nothing"})), fault.ProgramMissing},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fault.ReasonOf(tc.err); got != tc.want {
				t.Errorf("the reason of %v is %q, want %q", tc.err, got, tc.want)
			}
			if got := fault.Of(tc.err); got != fault.Precondition {
				t.Errorf("%v is of the kind %q", tc.err, got)
			}
		})
	}
}

// sized is a device of which only the size is asked.
type sized struct {
	mounter.BlockDevice
	size int64
}

func (s sized) Size() (int64, error) { return s.size, nil }

func second[T any](_ T, err error) error { return err }

// broken is a machine on which each program fails.
type broken struct{}

func (broken) Run(context.Context, host.Command) (host.Output, error) {
	return host.Output{ExitCode: 8, Stderr: []byte("no")}, nil
}

func TestProgramsThatFailHaveTheirReasons(t *testing.T) {
	f := New(broken{})
	format := &mkfs{f: f, req: Request{Filesystem: mounter.Ext4}, file: os.Stdin}
	expect.Reason(t, "mkfs", format.make(t.Context()), fault.FormatFailed)
	expect.Reason(t, "check", f.check(t.Context(), os.Stdin), fault.FsckFailed)
}

// With Begin a logical volume counts as written, and the format that did not begin would be refused as unfinished when mkfs is there.
func TestAFormatWithoutItsProgramDoesNotBegin(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	must(t, err)
	defer func() { _ = f.Close() }()
	t.Setenv("PATH", t.TempDir())
	for _, fs := range []mounter.Filesystem{mounter.Ext4, mounter.XFS} {
		begun := false
		req := Request{Volume: "v", Filesystem: fs, Begin: func(context.Context) error { begun = true; return nil }}
		_, err := New(host.Programs{}).prepare(t.Context(), verified{onFile{file: f}}, host.Exclusive{File: f}, 0, req)
		if !errors.Is(err, fault.ProgramMissing) || !strings.Contains(err.Error(), "mkfs."+string(fs)) || begun {
			t.Errorf("the format = %v, begun: %t, want %v before it begins", err, begun, fault.ProgramMissing)
		}
	}
}

// verified is an empty device that proves its identity.
type verified struct{ onFile }

func (verified) Size() (int64, error)         { return 0, nil }
func (verified) Verify(context.Context) error { return nil }

// e2fsprogs before 1.47, as of Ubuntu 22.04, refuses the option before it writes anything. With its zeros the volume is made all the same.
func TestAnOlderMkfsWritesTheZeros(t *testing.T) {
	old := &older{}
	format := &mkfs{f: New(old), req: Request{Filesystem: mounter.Ext4, History: NeverWritten}, file: os.Stdin}
	if err := format.make(t.Context()); err != nil || old.runs != 2 {
		t.Errorf("mkfs = %v after %d runs, want 2", err, old.runs)
	}
}

// older is a mkfs.ext4 that does not know assume_storage_prezeroed.
type older struct{ runs int }

func (o *older) Run(_ context.Context, cmd host.Command) (host.Output, error) {
	o.runs++
	if strings.Contains(strings.Join(cmd.Args, " "), "assume_storage_prezeroed") {
		return host.Output{ExitCode: 1, Stderr: []byte("\nBad option(s) specified: assume_storage_prezeroed\n\nExtended options are separated by commas")}, nil
	}
	return host.Output{}, nil
}

// F15: what a killed mkfs may have left is used only if its check, which repairs nothing, finds no error.
func TestAnIncompleteFilesystemHasItsReason(t *testing.T) {
	for _, fs := range []mounter.Filesystem{mounter.Ext4, mounter.XFS} {
		req, disk := Request{Volume: "v", Filesystem: fs}, onFile{file: os.Stdin}
		if err := New(scripted{}).checkComplete(t.Context(), disk, req); err != nil {
			t.Errorf("a complete %s = %v", fs, err)
		}
		for code := 1; code < 9; code++ {
			err := New(scripted{host.Output{ExitCode: code, Stdout: []byte("imap claims a free inode 131 is in use, would correct imap")}}).checkComplete(t.Context(), disk, req)
			if !errors.Is(err, fault.FormatUnfinished) {
				t.Errorf("%s whose check ended with code %d = %v, want %v", fs, code, err, fault.FormatUnfinished)
			}
		}
	}
}

// onFile is a device of which only the file is asked.
type onFile struct {
	mounter.BlockDevice
	file *os.File
}

func (d onFile) File() *os.File { return d.file }
